"""`make run` as a newcomer has it: the real gateway, worker, beat, benchecho and stores."""

import http.client
import json
import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.supervisor.services import PROJECT
from tests.gateway.supervisor.conftest import LAST_LINE, Project, Run

pytestmark = [pytest.mark.stack, pytest.mark.timeout(240)]
ENDED_WITHIN_SECONDS = 10.0


@pytest.fixture(scope="module")
def var(tmp_path_factory) -> Path:
    closed = tmp_path_factory.mktemp("closed")
    closed.chmod(0o700)
    return closed / "var"


@pytest.fixture(scope="module")
def run(var):
    with Project(PROJECT).run(var, WORKERS="2") as started:
        started.said = started.read_until(LAST_LINE)
        yield started


def ask(ready: dict[str, Any], method: str, path: str, body: str | None = None):
    """Status, headers and JSON of an answer, asked with the demo's key."""
    connection = http.client.HTTPConnection(ready["base_url"].removeprefix("http://"), timeout=60)
    headers = {"Authorization": f"Bearer {ready['api_key']}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read())
    finally:
        connection.close()


def printed_call(run: Run) -> list[str]:
    """The words of the call in the table, as a shell takes them."""
    table = "\n".join(run.said)
    call = table[table.index("\ncurl ") :].partition("\n\n")[0]
    return [word for word in shlex.split(call) if word != "\n"]


def complete(run: Run) -> str:
    """Make the printed call; returns the id of the request."""
    words = printed_call(run)
    ready = run.ready()
    assert words[1] == ready["base_url"] + "/v1/chat/completions"
    assert f"Authorization: Bearer {ready['api_key']}" in words
    status, headers, body = ask(ready, "POST", "/v1/chat/completions", words[-1])
    assert status == 200
    assert body["choices"][0]["message"]["content"].startswith("farthing-benchecho-fixed-response")
    return headers["x-request-id"]


def test_the_printed_call_is_answered_and_its_charge_is_explained(run):
    status, _, explained = ask(run.ready(), "GET", f"/v1/requests/{complete(run)}")
    assert status == 200
    assert explained["state"] == "settled"
    assert explained["usage_source"] == "vendor"


def test_the_logins_are_real(run):
    ready = run.ready()
    for who in ("tenant", "staff"):
        assert "@" in ready[who]["email"]
        assert len(ready[who]["password"]) >= 10


def test_no_secret_reaches_a_log(run):
    complete(run)
    ready = run.ready()
    secrets = [ready["api_key"], ready["test_key"], ready["tenant"]["password"]]
    secrets += json.loads((run.var / "secrets.json").read_text()).values()
    logs = {path.name: path.read_text() for path in (run.var / "logs").iterdir()}
    assert [(name, s) for name, text in logs.items() for s in secrets if s in text] == []


def test_a_killed_gateway_process_is_healed_while_the_other_answers(run):
    os.kill(run.ready()["pids"]["gateway-1"], signal.SIGKILL)
    run.read_until("gateway-1 runs again as process")
    complete(run)


def test_everything_ends_in_time_and_is_there_again_after_a_restart(run, var):
    before = run.ready()
    request_id = complete(run)
    asked_at = time.monotonic()
    run.stop(signal.SIGTERM)
    assert time.monotonic() - asked_at < ENDED_WITHIN_SECONDS
    assert run.process.returncode == 0
    assert [pid for pid in before["pids"].values() if Path(f"/proc/{pid}").exists()] == []
    assert not (var / "ready.json").exists()
    with Project(PROJECT).run(var) as again:
        again.said = again.read_until(LAST_LINE)
        after = again.ready()
        assert after["api_key"] == before["api_key"]
        assert after["tenant"] == before["tenant"]
        assert ask(after, "GET", f"/v1/requests/{request_id}")[0] == 200
        complete(again)
