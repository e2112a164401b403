import asyncio
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
import trustme
import uvloop

from gateway.upstream import Timeouts, Upstream
from tests.gateway.upstream.reference import ReferenceUpstream

PATIENT = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0, total_s=20.0)


@dataclass(frozen=True)
class Authority:
    """A certificate authority and what a client and a server make of it."""

    root: trustme.CA

    def trusted(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.root.configure_trust(context)
        return context

    def server(self, name: str = "localhost") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.root.issue_cert(name).configure_cert(context)
        return context


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority(trustme.CA())


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def run_on(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    """Run a test's coroutine function to its end, in a debug-quiet loop of its own."""

    def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(30):
                await test()

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(bounded())

    return run


@dataclass(frozen=True)
class Subject:
    """A client under test and the loop it runs on."""

    make: type[Upstream] | type[ReferenceUpstream]
    run: Run

    def upstream(self, url: str, **options: Any) -> Any:
        defaults: dict[str, Any] = {"timeouts": PATIENT, "max_connections": 4}
        return self.make(url, **(defaults | options))


SUBJECTS = {
    "ours-asyncio": Subject(Upstream, run_on(asyncio.new_event_loop)),
    "ours-uvloop": Subject(Upstream, run_on(uvloop.new_event_loop)),
    "aiohttp": Subject(ReferenceUpstream, run_on(asyncio.new_event_loop)),
}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


@pytest.fixture(params=[name for name in SUBJECTS if name.startswith("ours")])
def ours(request: pytest.FixtureRequest) -> Subject:
    """Our client alone, for what aiohttp does otherwise or not at all."""
    return SUBJECTS[request.param]
