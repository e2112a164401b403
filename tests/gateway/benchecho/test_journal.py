"""A line a completion: what was handed out, however it ended."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.benchecho.app import Benchecho
from gateway.benchecho.journal import VARIABLE, Journal, journal_of_environment
from gateway.benchecho.stats import Stats


def ask(path: Path | None, model: str, *, stream: bool = False, leaves_after: int = 0) -> None:
    """One completion; a client that leaves does so after so many writes."""
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "bench mark"}],
        "stream": stream,
        "user": "mark-1",
    }

    async def work() -> None:
        questions = [{"type": "http.request", "body": json.dumps(asked).encode()}]
        writes: list[dict[str, Any]] = []
        leaves = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if questions:
                return questions.pop()
            await leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.body":
                writes.append(message)
            if len(writes) == leaves_after:
                leaves.set()

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
        await Benchecho(Stats(), Journal(path))(scope, receive, send)

    asyncio.run(work())


def lines(path: Path) -> list[tuple[str, bool, int, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["user"] for line in found} == {"mark-1"}
    return [
        (line["model"], line["is_finished"], line["prompt_tokens"], line["completion_tokens"])
        for line in found
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_whole_answer_is_noted_with_its_true_tokens(tmp_path, stream: bool) -> None:
    path = tmp_path / "journal"
    for model in ("echo", "echo-no-usage", "echo-tools", "echo-reasoning", "echo-json-as-stream"):
        ask(path, model, stream=stream)
    assert lines(path) == [
        ("echo", True, 6, 64),
        ("echo-no-usage", True, 6, 64),
        ("echo-tools", True, 6, 8),
        ("echo-reasoning", True, 6, 80),
        ("echo-json-as-stream", True, 6, 64),
    ]


def test_what_was_cut_or_left_is_noted_with_what_was_handed_out(tmp_path) -> None:
    path = tmp_path / "journal"
    ask(path, "echo-cut", stream=True)
    ask(path, "echo-chunks-50-5", stream=True, leaves_after=4)
    ask(path, "echo-500")
    cut, left, failed = lines(path)
    assert cut == ("echo-cut", False, 6, 32)
    assert left == ("echo-chunks-50-5", False, 6, 24)
    assert failed == ("echo-500", False, 6, 0)


def test_nothing_is_noted_where_nobody_asked_for_it(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert journal_of_environment() == Journal(None)
    ask(None, "echo")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "journal"))
    assert journal_of_environment() == Journal(tmp_path / "journal")
