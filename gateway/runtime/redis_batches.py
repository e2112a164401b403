"""Redis commands in natural batches, as the ledger's writers do it.

What arrived while the last batch was under way goes as one pipeline: alone a command waits for
nothing, under load many share one write, one read and the client's work around them.
"""

import asyncio
from collections import deque
from hashlib import sha1
from typing import Any

import redis.asyncio as redis
from redis.exceptions import NoScriptError

BATCH_COMMANDS = 128
TIMEOUT_S = 0.25

FAILURES = (redis.RedisError, OSError)


class Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


class _Command:
    __slots__ = ("answer", "script", "words")

    def __init__(self, words: tuple[Any, ...], script: Script | None) -> None:
        self.words = words
        self.script = script
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class RedisBatches:
    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(
            url,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry_on_timeout=False,
            protocol=2,
        )
        self._waiting: deque[_Command] = deque()
        self._sender: asyncio.Task[None] | None = None

    def send(self, *words: Any) -> asyncio.Future[Any]:
        """The command's reply. Nobody has to wait for it; it raises one of `FAILURES`."""
        return self._put(_Command(words, None))

    def run(self, script: Script, keys: list[str], arguments: list[Any]) -> asyncio.Future[Any]:
        """The script's reply; a server that does not know it is told it first."""
        return self._put(_Command(("EVALSHA", script.digest, len(keys), *keys, *arguments), script))

    async def close(self) -> None:
        """Send what waits, and disconnect."""
        if self._sender is not None:
            await self._sender
        await self._redis.aclose()

    def _put(self, command: _Command) -> asyncio.Future[Any]:
        self._waiting.append(command)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send(), name="redis")
        return command.answer

    async def _send(self) -> None:
        while self._waiting:
            count = min(len(self._waiting), BATCH_COMMANDS)
            batch = [self._waiting.popleft() for _ in range(count)]
            try:
                replies = await self._replies(batch)
            except FAILURES as error:
                replies = [error] * count
            for command, reply in zip(batch, replies, strict=True):
                _answer(command.answer, reply)

    async def _replies(self, batch: list[_Command]) -> list[Any]:
        replies = await self._pipeline(batch)
        unknown = [
            number
            for number, (command, reply) in enumerate(zip(batch, replies, strict=True))
            if command.script is not None and isinstance(reply, NoScriptError)
        ]
        if unknown:
            again = [batch[number] for number in unknown]
            for text in {command.script.text for command in again if command.script is not None}:
                await self._redis.script_load(text)
            for number, reply in zip(unknown, await self._pipeline(again), strict=True):
                replies[number] = reply
        return replies

    async def _pipeline(self, batch: list[_Command]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for command in batch:
                pipe.execute_command(*command.words)
            return await pipe.execute(raise_on_error=False)


def _answer(answer: asyncio.Future[Any], reply: Any) -> None:
    if answer.done():  # whoever asked has left
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
        answer.exception()  # a reply that nobody waits for is no error of the loop's
    else:
        answer.set_result(reply)
