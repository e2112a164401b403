"""Stock mlx_lm.server behind the gateway: `make test-mlx`, which makes it an environment.

It speaks HTTP/1.0, its streams end with the connection, its last chunk of a stream is labelled a
completion, and its errors are texts where others send objects.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.api.conftest import events, text_of
from tests.gateway.qualification.conftest import made_vendor
from tests.stack import ROOT, Process, free_port, until
from tests.vendors import tiny_model
from tests.vendors.conftest import FAMILY, START_SECONDS, is_up, silenced
from tests.vendors.test_llama import SEEDS, content_of, counted

MODEL = "default_model"  # this server's name for the one that it was started with
THINKING_OFF = '{"enable_thinking":false}'

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(300)]


@pytest.fixture(scope="session")
def python() -> Path:
    path = Path(os.environ.get("MLX_PYTHON", ROOT / "var/mlx/bin/python"))
    assert path.exists(), "`make test-mlx` makes the environment that this needs"
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlx") / "tiny"
    tiny_model.write_mlx(tiny_model.make(), path)
    return path


def command(python: Path, folder: Path, port: int) -> list[str]:
    return [
        *(str(python), "-m", "mlx_lm.server", "--model", str(folder)),
        *("--host", "127.0.0.1", "--port", str(port), "--chat-template-args", THINKING_OFF),
    ]


@pytest.fixture(scope="session")
def mlx(python: Path, folder: Path) -> Iterator[str]:
    port = free_port()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    log = folder.with_suffix(".log")
    process = Process(command(python, folder, port), environment, log).start()

    def loaded() -> bool:
        assert process.popen.poll() is None, process.text()[-3000:]
        return is_up(f"http://127.0.0.1:{port}/health")

    try:
        until(loaded, START_SECONDS)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.stop()


@pytest.mark.parametrize(("prompt", "answer", "prompt_tokens", "completion_tokens"), SEEDS)
@pytest.mark.parametrize("stream", [False, True])
class TestSeeds:
    def test_it_is_charged_by_the_vendors_usage(
        self, routed, mlx, stream, prompt, answer, prompt_tokens, completion_tokens
    ):
        alice = routed("mlx-spoken", mlx, MODEL)
        said = alice.chat("mlx-spoken", prompt, temperature=0, max_tokens=128, stream=stream)
        assert (text_of(events(said)) if stream else content_of(said)) == answer
        exchange = alice.settled(said)
        assert exchange.charge.usage_source == "vendor"
        assert counted(exchange) == (prompt_tokens, completion_tokens)

    def test_without_usage_the_estimate_is_the_same(
        self, routed, mlx, stream, prompt, answer, prompt_tokens, completion_tokens
    ):
        with silenced(mlx) as proxy:
            name = f"mlx-silent-{proxy.base_url}"
            alice = routed(name, proxy.base_url, MODEL)
            said = alice.chat(name, prompt, temperature=0, max_tokens=128, stream=stream)
            assert (text_of(events(said)) if stream else content_of(said)) == answer
            exchange = alice.settled(said)
        assert exchange.charge.usage_source == "estimate"
        assert counted(exchange) == (prompt_tokens, completion_tokens)


@pytest.mark.django_db
def test_check_vendor_tells_its_ways(python, folder, tmp_path, monkeypatch):
    """It does what the first report says, and drops a bad request without an answer."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    port, out = free_port(), tmp_path / "report.json"
    url = f"http://127.0.0.1:{port}/v1"
    made_vendor(url, MODEL)
    spawn = " ".join(f"'{word}'" for word in command(python, folder, port))
    with contextlib.suppress(CommandError):
        call_command(
            *("check_vendor", "acme", "--family", FAMILY, "--out", str(out)),
            *("--spawn", spawn, "--spawn-url", url),
        )
    report = json.loads(out.read_text())
    checks = {check["id"]: check for check in report["checks"]}
    figures = {
        name: tuple(checks[name]["response"]["usage"].values())[:2]
        for name in ("arithmetic", "json")
    }
    assert figures == {"arithmetic": (21, 2), "json": (34, 10)}
    assert {name: check["passed"] for name, check in checks.items()} == {
        **dict.fromkeys(("arithmetic", "json", "stream", "include_usage", "usage"), True),
        **dict.fromkeys(("long_input", "first_token"), True),
        "error_shape": False,
        **dict.fromkeys(("tools", "cancel")),
    }
    assert report["owned_server_stopped"] is True
