"""Streams, addresses and leaving, through the real Caddy and the real nginx."""

import json
import subprocess

import pytest
import requests

from tests.deploy.conftest import INSIDE, MODEL, OUTSIDE, SITE
from tests.stack import until

JSON = "Content-Type: application/json"
LIES = (
    "X-Forwarded-For: 127.0.0.7",
    "X-Forwarded-For: 127.0.0.7, 127.0.0.1",
    "X-Real-IP: 127.0.0.7",
    "Forwarded: for=127.0.0.7",
    "Via: 1.1 127.0.0.7",
    "True-Client-IP: 127.0.0.7",
)

pytestmark = [pytest.mark.stack, pytest.mark.proxies]


def asking(account, model: str = "farthing-echo", **body) -> list[str]:
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], **body}
    key = f"Authorization: Bearer {account.secret}"
    return ["--header", key, "--header", JSON, "--data", json.dumps(body)]


def chat(front, account, *options: str, source: str = INSIDE) -> tuple[dict, str]:
    path = "/v1/chat/completions"
    body, told = front.curl(path, *asking(account), *options, source=source)
    return json.loads(body), told.split()[0]


def code(answer: tuple[dict, str]) -> tuple[str, str]:
    body, status = answer
    return status, body["error"]["code"]


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_an_event_passes_before_the_next_one_is_there(front, account, go, version: str) -> None:
    alice = account()
    options = [version, *asking(alice, MODEL, stream=True)]
    command = front.command("/v1/chat/completions", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        first = running.stdout.readline()
        assert '"content":"Hello"' in first
        go.set()
        rest = running.stdout.read().split("\n\n")
    assert '"content":" world"' in rest[0].strip()
    assert rest[-2:] == ["data: [DONE]", f"\n200 {version.removeprefix('--http')}"]
    assert alice.exchange().charge.outcome == "answered"


def test_a_client_that_leaves_ends_the_vendors_work(front, account, go) -> None:
    alice = account()
    command = front.command("/v1/chat/completions", *asking(alice, MODEL, stream=True))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert '"content":"Hello"' in running.stdout.readline()
        call = front.ground.vendor.calls_of(MODEL)[-1]
        running.kill()
    assert call.left.wait(10)
    charge = alice.exchange().charge
    assert (charge.outcome, charge.usage_source) == ("client_gone", "estimate")


def test_a_keys_ranges_see_the_client_and_not_the_proxy(front, account) -> None:
    inside, proxy_only = account(allowed_ips=[INSIDE]), account(allowed_ips=["127.0.0.1"])
    assert chat(front, inside)[1] == "200"
    assert code(chat(front, inside, source=OUTSIDE)) == ("403", "ip_not_allowed")
    assert code(chat(front, proxy_only)) == ("403", "ip_not_allowed")


@pytest.mark.parametrize("lie", LIES)
def test_what_a_client_says_of_its_address_is_not_believed(front, account, lie: str) -> None:
    alice = account(allowed_ips=[INSIDE])
    answer = chat(front, alice, "--header", lie, source=OUTSIDE)
    assert code(answer) == ("403", "ip_not_allowed")
    body, told = front.curl(
        "/v1/key",
        *("--header", f"Authorization: Bearer {alice.secret}", "--header", lie),
        source=OUTSIDE,
    )
    assert (told.split()[0], json.loads(body)["error"]["code"]) == ("403", "ip_not_allowed")


def test_the_transcript_has_the_clients_address(front, account) -> None:
    from gateway.models import Transcript

    alice = account()
    assert chat(front, alice)[1] == "200"
    kept = Transcript.objects.filter(exchange_id=alice.exchange().id)
    assert until(kept.first).legs["client"]["address"] == INSIDE


@pytest.mark.parametrize("lie", LIES)
def test_beside_the_proxy_nobody_is_believed(ground, account, lie: str) -> None:
    """The gateway's own port, from an address that is no proxy's."""
    alice = account(allowed_ips=[INSIDE])
    command = ["curl", "--silent", "--interface", OUTSIDE, "--header", lie, *asking(alice)]
    url = f"{ground.url}/v1/chat/completions"
    done = subprocess.run([*command, url], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["error"]["code"] == "ip_not_allowed"


def test_pages_know_that_they_are_served_over_https(front) -> None:
    """Django compares where a form came from with where it believes to be itself."""
    jar = front.ground.folder / f"{front.name}.jar"
    page, told = front.curl("/accounts/login/", "--cookie-jar", str(jar))
    assert told.split()[0] == "200"
    token = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    form = ["--cookie", str(jar), "--data", f"csrfmiddlewaretoken={token}&login=a&password=b"]
    page, told = front.curl("/accounts/login/", *form, "--header", f"Origin: {front.url}")
    assert told.split()[0] == "200"
    plain = f"Origin: http://{SITE}:{front.port}"
    assert front.curl("/accounts/login/", *form, "--header", plain)[1].split()[0] == "403"


def test_a_body_beyond_our_bound_is_refused_in_our_words(front, account, tmp_path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * (50 * 1024 * 1024 + 1))
    options = [*asking(account())[:4], "--header", "Expect:", "--data-binary", f"@{large}"]
    body, told = front.curl("/v1/chat/completions", *options)
    assert (told.split()[0], json.loads(body)["error"]["code"]) == ("413", "request_too_large")


def test_a_key_in_the_clear_is_refused_and_a_page_is_moved(front) -> None:
    if front.name == "caddy":
        return  # it moves both; the test keeps it off port 80
    url, headers = f"http://127.0.0.1:{front.plain_port}", {"Host": SITE}
    refused = requests.post(f"{url}/v1/chat/completions", headers=headers, timeout=5)
    assert refused.status_code == 403
    moved = requests.get(f"{url}/keys", headers=headers, timeout=5, allow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (301, f"https://{SITE}/keys")
