"""Group d: keys, other people's things, and what must never leave the house."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from billing.limits import set_limit
from billing.models import Exchange, LimitPeriod
from gateway.models import Transcript
from gateway.relay.capture import unpack
from keys import secrets
from keys.services import revoke_key
from tests.cases.client import ask
from tests.cases.runner import (
    BEARER,
    NO_ROW,
    NOTHING,
    TYPED,
    Ask,
    Case,
    Gets,
    Played,
    vendors,
)
from tests.cases.wire import HELLO, ROLE, STOP, stream, text, usage, whole
from tests.stack import until

VENDOR_KEY = "vk-case-0001"
ORIGIN = "https://app.example"
PAID = vendors(10, 5, "0.00003")
REFUSED = Gets(status=401, error="invalid_api_key", headers={"x-should-retry": "false"})
HEADERS_TO_A_VENDOR = {
    "host",
    "authorization",
    "content-type",
    "content-length",
    "accept-encoding",
    "user-agent",
    "connection",
}


def authorized(value: str, *more: tuple[str, str]) -> Ask:
    return Ask(headers=(("Authorization", value), *TYPED, *more))


def with_headers(*headers: tuple[str, str]) -> Ask:
    return Ask(headers=(*BEARER, *TYPED, *headers))


def vendor_said(status: str, code: str, message: str):
    error = {"message": message, "type": "invalid_request_error", "code": code}
    return whole({"error": error}, status=status)


def bearer_at_vendor(value: str | None):
    def check(played: Played) -> None:
        assert played.calls[0].headers.get("authorization") == value

    return check


def vendor_hears_nothing_of_the_clients_head(played: Played) -> None:
    (call,) = played.calls
    head = call.head.decode("latin-1")
    assert "CANARY" not in head
    assert played.caller.secret not in head
    assert set(call.headers) <= HEADERS_TO_A_VENDOR
    assert call.path == f"/{played.case.model}/v1/chat/completions"


def transcript_of(played: Played) -> Transcript:
    return until(Transcript.objects.filter(exchange_id=played.exchange.id).first)


def no_canary_is_kept(played: Played) -> None:
    transcript = transcript_of(played)
    kept = json.dumps(transcript.legs) + unpack(bytes(transcript.vendor_answer)).decode()
    assert "CANARY" not in kept
    assert played.caller.secret not in kept


def no_credential_of_ours_is_kept(played: Played) -> None:
    transcript = transcript_of(played)
    assert VENDOR_KEY not in unpack(bytes(transcript.vendor_answer)).decode()
    assert VENDOR_KEY not in json.dumps(transcript.legs)
    assert "refuses ••••" in played.exchange.attempts[0]["vendor_message"]


def every_chunk_has_the_public_name(played: Played) -> None:
    assert {chunk["model"] for chunk in played.got.chunks()} == {played.case.model}
    assert len({chunk["id"] for chunk in played.got.chunks()}) == 1


def length_is_true(played: Played) -> None:
    assert int(played.got.headers["content-length"]) == len(played.got.body)


def request_id_is_ours(played: Played) -> None:
    assert played.got.headers["x-request-id"].startswith("req_")


CASES = [
    # --- keys that prove nothing ----------------------------------------------------------
    *(
        Case(
            id=f"D01-{name}",
            rule="a refused key is not said again",
            asks=authorized(value),
            gets=replace(REFUSED, lacks=("SECRET123",)),
            pays=NO_ROW,
            calls=0,
        )
        for name, value in {
            "unknown": "Bearer sk-live-SECRET123-unknown",
            "blanks": "Bearer  sk-live-SECRET123",
            "cut": "Bearer sk_live_SECRET123x",
            "long": "Bearer " + "SECRET123" * 550,
            "basic": "Basic c2stbGl2ZTpTRUNSRVQxMjM=",
            "two": "Bearer SECRET123 SECRET123",
            "bare": "SECRET123",
            "empty": "Bearer ",
            "latin": "Bearer SECRET123\xe9\xff",
        }.items()
    ),
    Case(
        id="D01-none",
        rule="without a key there is nobody to serve",
        asks=Ask(headers=TYPED),
        gets=REFUSED,
        pays=NO_ROW,
        calls=0,
    ),
    Case(
        id="D01-contradiction",
        rule="two keys that differ prove nothing",
        asks=Ask(headers=(*BEARER, ("Authorization", "Bearer sk-other"), *TYPED)),
        gets=REFUSED,
        pays=NO_ROW,
        calls=0,
    ),
    # --- keys that are read kindly --------------------------------------------------------
    *(
        Case(id=f"D17-{name}", rule="scheme and blanks do not matter", asks=asks, pays=PAID)
        for name, asks in {
            "lower": authorized("bearer   {key} "),
            "upper": authorized("BEARER {key}"),
            "tab": authorized("Bearer\t{key}\t"),
            "twice": authorized("Bearer {key}", ("Authorization", "Bearer {key}")),
            "own": Ask(headers=(("X-Api-Key", " {key} "), *TYPED)),
            "both": authorized("Bearer {key}", ("x-api-key", "another")),
        }.items()
    ),
    # --- which model ----------------------------------------------------------------------
    Case(
        id="D11",
        rule="a client's fallbacks reach nobody",
        asks=Ask(fields={"fallbacks": ["case-d11-other"], "models": ["case-d11-other"]}),
        pays=PAID,
        key={"allowed_models": ["case-d11"]},
        sent_lacks=("fallbacks", "models"),
    ),
    Case(
        id="D11-other",
        rule="a model that is not the key's is refused",
        gets=Gets(status=403, error="model_not_allowed"),
        pays=NOTHING,
        key={"allowed_models": ["case-d11"]},
        calls=0,
    ),
    *(
        Case(
            id=f"D13-{name}",
            rule="a key twice in one object is refused, however it is written",
            asks=Ask(raw=b'{"messages":[{"role":"user","content":"hi"}],%b}' % members),
            gets=Gets(status=400, error="duplicate_key"),
            pays=NOTHING,
            calls=0,
        )
        for name, members in {
            "model": b'"model":"{model}","model":"other"',
            "reversed": b'"model":"other","model":"{model}"',
            "escaped": b'"model":"{model}","mod\\u0065l":"other"',
            "stream": b'"model":"{model}","stream":true,"stream":false',
            "bound": b'"model":"{model}","max_tokens":1,"max_tokens":9999',
            "inner": b'"model":"{model}","metadata":{"a":1,"\\u0061":2}',
        }.items()
    ),
    # --- our credential -------------------------------------------------------------------
    Case(
        id="D15",
        rule="a credential is sent without the line end that was pasted with it",
        vendor={"credential": "vk-1\n"},
        pays=PAID,
        also=bearer_at_vendor("Bearer vk-1"),
    ),
    Case(
        id="D15-blanks",
        rule="nor with blanks",
        vendor={"credential": " vk-1\t"},
        pays=PAID,
        also=bearer_at_vendor("Bearer vk-1"),
    ),
    Case(
        id="D16",
        rule="a vendor without a credential gets no header for one",
        vendor={"credential": ""},
        pays=PAID,
        also=bearer_at_vendor(None),
    ),
    *(
        Case(
            id=f"D19-{status[:3]}",
            rule="a vendor that refuses us is no matter of the client's key",
            sends=vendor_said(status, "invalid_api_key", "Incorrect API key provided: vk-***1"),
            gets=Gets(
                status=(502, 503),
                error="upstream_credential_rejected",
                lacks=("vk-", "invalid_api_key"),
            ),
            pays=NOTHING,
        )
        for status in ("401 Unauthorized", "402 Payment Required", "403 Forbidden")
    ),
    Case(
        id="D20",
        rule="our unpaid bill is not the client's rate limit",
        sends=vendor_said(
            "429 Too Many Requests",
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        gets=Gets(
            status=(502, 503),
            error="upstream_credential_rejected",
            lacks=("insufficient_quota", "billing"),
        ),
        pays=NOTHING,
    ),
    Case(
        id="D20-stream",
        rule="nor is it where a stream says so",
        sends=stream({"error": {"code": "insufficient_quota", "message": "check your billing"}}),
        asks=Ask(fields={"stream": True}),
        gets=Gets(status=(502, 503), lacks=("insufficient_quota", "billing")),
        pays=NOTHING,
    ),
    Case(
        id="D20-words",
        rule="no error shows the vendor's name, its address or our credential",
        sends=vendor_said(
            "400 Bad Request",
            "bad_value",
            f"http://127.0.0.1:9/case/v1 of case-d20-words-0 refuses {VENDOR_KEY}",
        ),
        gets=Gets(
            status=400,
            error="bad_value",
            lacks=(VENDOR_KEY, "case-d20-words-0", "127.0.0.1", "/v1", "vendor-m"),
        ),
        pays=NOTHING,
        also=no_credential_of_ours_is_kept,
    ),
    # --- browsers -------------------------------------------------------------------------
    Case(
        id="D21",
        rule="a browser's preflight needs no key",
        asks=Ask(
            method="OPTIONS",
            headers=(
                ("Origin", ORIGIN),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "authorization,content-type"),
            ),
        ),
        gets=Gets(
            status=204,
            headers={
                "access-control-allow-origin": ORIGIN,
                "access-control-allow-credentials": None,
            },
        ),
        pays=NO_ROW,
        calls=0,
        gateway="restless",
    ),
    Case(
        id="D21-error",
        rule="a browser can read our errors",
        asks=authorized("Bearer no", ("Origin", ORIGIN)),
        gets=replace(REFUSED, headers={"access-control-allow-origin": ORIGIN}),
        pays=NO_ROW,
        calls=0,
        gateway="restless",
    ),
    Case(
        id="D21-answer",
        rule="and our answers",
        asks=with_headers(("Origin", ORIGIN)),
        gets=Gets(headers={"access-control-allow-origin": ORIGIN}),
        pays=PAID,
        gateway="restless",
    ),
    Case(
        id="D21-stranger",
        rule="another origin gets no leave",
        asks=with_headers(("Origin", "https://evil.example")),
        gets=Gets(headers={"access-control-allow-origin": None}),
        pays=PAID,
        gateway="restless",
    ),
    # --- who and where --------------------------------------------------------------------
    *(
        Case(
            id=f"D22-{number}",
            rule="a stranger cannot name its own address",
            asks=with_headers((name, value)),
            gets=Gets(status=403, error="ip_not_allowed"),
            pays=NOTHING,
            key={"allowed_ips": ["10.0.0.5"]},
            calls=0,
        )
        for number, (name, value) in enumerate(
            (
                ("X-Forwarded-For", "10.0.0.5"),
                ("X-Forwarded-For", "10.0.0.5, 1.2.3.4"),
                ("X-Forwarded-For", "::ffff:10.0.0.5"),
                ("X-Real-IP", "10.0.0.5"),
                ("Forwarded", "for=10.0.0.5"),
                ("True-Client-IP", "10.0.0.5"),
            )
        )
    ),
    Case(
        id="D23",
        rule="a client cannot choose where its request goes",
        asks=Ask(
            fields={
                "api_base": "http://127.0.0.1:9/evil",
                "base_url": "http://127.0.0.1:9/",
                "api_key": "x",
                "extra_headers": {"Host": "evil"},
            }
        ),
        pays=PAID,
        sent_lacks=("api_base", "base_url", "api_key", "extra_headers"),
        also=vendor_hears_nothing_of_the_clients_head,
    ),
    # --- headers --------------------------------------------------------------------------
    Case(
        id="D06",
        rule="no secret of a header is kept",
        asks=with_headers(
            ("api-key", "CANARY-1"),
            ("x-auth-token", "CANARY-2"),
            ("x-goog-api-key", "CANARY-3"),
            ("Cookie", "session=CANARY-4"),
            ("X-Amz-Security-Token", "CANARY-5"),
            ("OpenAI-Organization", "CANARY-6"),
        ),
        pays=PAID,
        also=no_canary_is_kept,
    ),
    Case(
        id="D24",
        rule="nothing of the client's head reaches the vendor",
        asks=with_headers(
            ("Proxy-Authorization", "Basic CANARY"),
            ("Connection", "X-Secret, keep-alive"),
            ("X-Secret", "CANARY2"),
            ("TE", "trailers"),
            ("Cookie", "session=CANARY"),
            ("X-Forwarded-For", "203.0.113.9"),
            ("OpenAI-Organization", "CANARY"),
        ),
        pays=PAID,
        also=vendor_hears_nothing_of_the_clients_head,
    ),
    Case(
        id="D25",
        rule="nothing of the vendor's head reaches the client",
        sends=replace(
            HELLO,
            headers=(
                "Set-Cookie: __cf=1; Path=/",
                "openai-organization: acme-operator",
                "cf-ray: x",
                "Server: theirs",
                "x-request-id: theirs",
                "x-ratelimit-remaining-requests: 3",
            ),
        ),
        gets=Gets(
            headers={
                "set-cookie": None,
                "openai-organization": None,
                "cf-ray": None,
                "x-ratelimit-remaining-requests": None,
            },
            lacks=("theirs",),
        ),
        pays=PAID,
        also=length_is_true,
    ),
    *(
        Case(
            id=f"D27-{name}",
            rule="the request id is ours, whatever the client sends",
            asks=with_headers(("X-Request-Id", value), ("X-Client-Request-Id", value)),
            gets=Gets(headers={"x-client-request-id": None}),
            pays=PAID,
            also=request_id_is_ours,
        )
        for name, value in {
            "long": "a" * 20_000,
            "escaped": "a%0d%0aX-Evil:1",
            "tab": "a\tb",
            "separator": "a\xe2\x80\xa8b",
        }.items()
    ),
    Case(
        id="D27-control",
        rule="a control character in a header is refused where it is read",
        asks=with_headers(("X-Request-Id", "a\tb\x1b[31m")),
        gets=Gets(status=400, kind="text/plain"),
        pays=NO_ROW,
        calls=0,
    ),
    # --- names ----------------------------------------------------------------------------
    Case(
        id="D30",
        rule="the vendor's name for the model does not show in a stream",
        sends=stream(ROLE, text("Hello"), STOP, usage(10, 2)),
        asks=Ask(fields={"stream": True, "stream_options": {"include_usage": True}}),
        gets=Gets(text="Hello", done=True, lacks=("vendor-m", "chatcmpl-v1")),
        pays=vendors(10, 2, "0.000018"),
        also=every_chunk_has_the_public_name,
    ),
    Case(
        id="D30-body",
        rule="nor in a body",
        gets=Gets(text="Hello", has=('"case-d30-body"',), lacks=("vendor-m", "chatcmpl-v1")),
        pays=PAID,
    ),
    # --- played step by step below --------------------------------------------------------
    Case(id="D02", rule="a key that is no more is refused in the same words", pays=PAID),
    Case(id="D03", rule="a spent key is not written down", pays=PAID),
    Case(id="D07", rule="what was allowed is refused at once where it is no more", pays=PAID),
    Case(id="D09", rule="a key that was good has its end all the same", pays=PAID),
    Case(id="D28", rule="a key is nowhere in clear", pays=PAID),
    Case(id="D29", rule="another tenant's things are not there", pays=PAID),
    Case(id="D31", rule="a key of the relay opens nothing else", pays=PAID),
]
BY_ID = {case.id: case for case in CASES}
STEPS = {"D02", "D03", "D07", "D09", "D28", "D29", "D31"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.id not in STEPS], ids=lambda case: case.id
)
def test_access(stage, case: Case) -> None:
    stage.play(case)
    assert "SECRET123" not in stage.logs()
    assert VENDOR_KEY not in stage.logs()


def test_d02_a_key_that_is_no_more_is_refused_in_the_words_for_one_that_never_was(stage) -> None:
    case = BY_ID["D02"]
    callers = [stage.caller(case) for _ in range(4)]
    unknown, revoked, paused, expired = callers
    unknown.secret = secrets.make("live").text
    changes = {"revoked_at": revoked, "paused_at": paused, "expires_at": expired}
    for name, caller in changes.items():
        setattr(caller.key, name, timezone.now())
        caller.key.save(update_fields=[name])
    answers = {(got.status, got.body) for got in (stage.call(case, one) for one in callers)}
    assert len(answers) == 1
    assert answers.pop()[0] == 401


def test_d03_a_spent_key_is_not_written_down(stage) -> None:
    case = BY_ID["D03"]
    caller = stage.caller(case)
    set_limit(caller.tenant, LimitPeriod.DAY, 1_000, actor="tests", key=caller.key)
    got = stage.call(case, caller)
    assert (got.status, got.json()["error"]["code"]) == (402, "key_limit_reached")
    assert caller.balance() == (10_000_000_000, 0)
    assert caller.secret not in stage.logs()
    assert caller.secret.encode() not in got.body


@pytest.mark.parametrize(
    ("change", "status"),
    [("revoked", 401), ("paused", 401), ("model", 403), ("address", 403), ("tenant", 403)],
)
def test_d07_what_is_taken_away_is_gone_within_a_second(stage, change: str, status: int) -> None:
    case = BY_ID["D07"]
    caller = stage.caller(case)
    assert stage.call(case, caller).status == 200
    key, tenant = caller.key, caller.tenant
    if change == "revoked":
        revoke_key(tenant, key.public_id, actor="tests")
    elif change == "tenant":
        tenant.state = "suspended"
        tenant.save(update_fields=["state"])
    else:
        fields = {
            "paused": {"paused_at": timezone.now()},
            "model": {"allowed_models": ["another"]},
            "address": {"allowed_ips": ["10.0.0.5"]},
        }[change]
        for name, value in fields.items():
            setattr(key, name, value)
        key.save(update_fields=list(fields))
    until(lambda: stage.call(case, caller).status == status, seconds=1.0)


def test_d09_a_key_that_is_cached_has_its_end_all_the_same(stage) -> None:
    case = BY_ID["D09"]
    caller = stage.caller(
        replace(case, key={"expires_at": timezone.now() + timedelta(seconds=1.5)})
    )
    assert stage.call(case, caller).status == 200
    until(lambda: stage.call(case, caller).status == 401, seconds=3.0)


def test_d28_a_key_is_nowhere_in_clear(stage) -> None:
    import redis

    played = stage.play(BY_ID["D28"])
    until(lambda: Transcript.objects.filter(exchange_id=played.exchange.id).exists())
    hidden = played.caller.secret.rsplit("_", 1)[1]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(
                f'SELECT count(*) FROM "{table}" AS t WHERE t::text LIKE %s', [f"%{hidden}%"]
            )
            assert cursor.fetchone() == (0,), table
    with redis.Redis.from_url(settings.REDIS_URL) as store:
        for name in store.scan_iter(count=1_000):
            assert hidden.encode() not in name
            assert hidden.encode() not in (store.dump(name) or b"")
    assert hidden not in stage.logs()
    assert hidden not in played.caller.get("/v1/key").text


def test_d29_another_tenants_request_is_as_absent_as_one_that_never_was(stage) -> None:
    case = BY_ID["D29"]
    played = stage.play(case)
    theirs = played.got
    bob = stage.caller(case)
    completion_id = theirs.json()["id"]
    never = bob.get("/v1/requests/req_01a232bdee7370a18bd8423807065c46")
    assert never.status_code == 404
    for name in (theirs.headers["x-request-id"], completion_id):
        answer = bob.get(f"/v1/requests/{name}?tenant={played.caller.tenant.pk}")
        assert (answer.status_code, answer.content) == (404, never.content)
        assert played.caller.get(f"/v1/requests/{name}").status_code == 200
    assert (
        bob.get(f"/v1/key?key={played.caller.key.public_id}").json()["id"]
        != (played.caller.get("/v1/key").json()["id"])
    )


@pytest.mark.parametrize("path", ["/staff", "/keys", "/requests", "/messages", "/api/v1/keys"])
def test_d31_a_key_of_the_relay_opens_nothing_else(stage, path: str) -> None:
    caller = stage.caller(BY_ID["D31"])
    for headers in ([("Authorization", f"Bearer {caller.secret}")], []):
        got = ask(caller.base_url, b"", headers, method="GET", path=f"{path}?scope=all")
        assert got.status in {302, 401, 403, 404}
        assert caller.tenant.name.encode() not in got.body
    assert not Exchange.objects.filter(tenant_id=caller.tenant.pk).exists()
