"""LISTEN on a real PostgreSQL, through a proxy that breaks on demand."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from gateway.runtime import listener as module
from gateway.runtime.listener import Listener

CHANNEL = "farthing_test"


class Heard:
    """What a listener told, in order; `until` waits for the next such word."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._moved = asyncio.Event()

    def say(self, word: str) -> None:
        self.words.append(word)
        self._moved.set()

    async def until(self, word: str) -> None:
        while word not in self.words:
            self._moved.clear()
            await self._moved.wait()


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(module, "RECONNECT_PAUSE_S", 0.01)


def run(url: str, work: Callable[[Listener, Heard], Awaitable[None]], handler=None) -> list[str]:
    async def connect() -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=3)

    async def main() -> list[str]:
        heard = Heard()
        listener = Listener(
            connect,
            {CHANNEL: handler or heard.say},
            lost=lambda: heard.say("lost"),
            found=lambda: heard.say("found"),
        )
        task = asyncio.create_task(listener.run())
        try:
            async with asyncio.timeout(20):
                await work(listener, heard)
        finally:
            task.cancel()
            await asyncio.wait({task})
        assert not listener.is_listening
        return heard.words

    return asyncio.run(main())


def tell(url: str, payload: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))


def test_what_is_told_is_handled_in_order(database_url) -> None:
    async def work(listener: Listener, heard: Heard) -> None:
        await heard.until("found")
        assert listener.is_listening
        for word in ("one", "two"):
            await asyncio.to_thread(tell, database_url, word)
        await heard.until("two")

    assert run(database_url, work) == ["found", "one", "two", "lost"]


def test_a_lost_connection_is_told_at_once_and_then_found_anew(database_url, proxied_url, proxy):
    async def work(listener: Listener, heard: Heard) -> None:
        await heard.until("found")
        proxy.cut()
        await heard.until("lost")
        assert not listener.is_listening
        heard.words.clear()
        proxy.mend()
        await heard.until("found")
        await asyncio.to_thread(tell, database_url, "again")
        await heard.until("again")

    run(proxied_url, work)


def test_a_peer_that_says_nothing_is_lost_after_a_probe(proxied_url, proxy, monkeypatch) -> None:
    """Caches are off before psycopg has given the dead connection up, which takes it seconds."""
    monkeypatch.setattr(module, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(module, "PROBE_TIMEOUT_S", 0.2)

    async def work(listener: Listener, heard: Heard) -> None:
        await heard.until("found")
        proxy.freeze()
        begun_s = time.monotonic()
        await heard.until("lost")
        assert not listener.is_listening
        assert time.monotonic() - begun_s < 2.0
        proxy.thaw()
        heard.words.clear()
        await heard.until("found")

    run(proxied_url, work)


def test_a_quiet_connection_is_probed_and_kept(database_url, monkeypatch) -> None:
    monkeypatch.setattr(module, "PROBE_EVERY_S", 0.02)

    async def work(listener: Listener, heard: Heard) -> None:
        await heard.until("found")
        with psycopg.connect(database_url, autocommit=True) as connection:
            for _ in range(100):
                await asyncio.sleep(0.01)
                query = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT 1'"
                if connection.execute(query).fetchone() == (1,):
                    break
            else:
                raise AssertionError("no probe was seen")
        assert listener.is_listening

    assert run(database_url, work) == ["found", "lost"]


def test_a_word_that_is_not_understood_is_the_same_as_words_lost(database_url) -> None:
    """Anybody with a connection may say anything: it must not leave the caches deaf."""
    understood = asyncio.Event()

    def handler(payload: str) -> None:
        assert int(payload) == 7
        understood.set()

    async def work(listener: Listener, heard: Heard) -> None:
        await heard.until("found")
        await asyncio.to_thread(tell, database_url, "nonsense")
        await heard.until("lost")
        heard.words.clear()
        await heard.until("found")
        await asyncio.to_thread(tell, database_url, "7")
        await understood.wait()

    run(database_url, work, handler)
