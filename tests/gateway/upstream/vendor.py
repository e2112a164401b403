"""A vendor that speaks the exact bytes a test gives it, over a real loopback socket."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self


@dataclass(eq=False)
class Wire:
    """The vendor's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    vendor: "Vendor"

    async def request(self) -> bytes:
        """Read one request with a content-length and return its body."""
        head = await self.head()
        length = next(
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        return await self.reader.readexactly(length)

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.vendor.heads.append(head)
        self.vendor.moved.set()
        return head

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def pause(self, seconds: float) -> None:
        """Say nothing for a while, or until the client leaves."""
        try:
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
        except TimeoutError:
            pass

    async def closed_by_client(self) -> None:
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        self.vendor.closed_by_client.set()


Script = Callable[[Wire], Awaitable[None]]


@dataclass(eq=False)
class Vendor:
    """`async with Vendor(script) as vendor`: the script runs once a connection, then it closes."""

    script: Script
    ssl_context: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed_by_client: asyncio.Event = field(default_factory=asyncio.Event)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    faults: list[Exception] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        scheme = "https" if self.ssl_context else "http"
        return f"{scheme}://localhost:{self.port}"

    @property
    def port(self) -> int:
        return self._server.sockets[0].getsockname()[1]

    async def has_read(self, requests: int) -> None:
        """Wait until this many heads have come, on all connections together."""
        while len(self.heads) < requests:
            self.moved.clear()
            await self.moved.wait()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, self.host, 0, ssl=self.ssl_context, limit=2**20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        assert self.faults == []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.script(Wire(reader, writer, self))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left, which many tests are about
        except asyncio.CancelledError:
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001 - shown when the vendor stops
            self.faults.append(error)
        finally:
            writer.close()
            self._tasks.discard(task)


def answering(*answers: bytes) -> Script:
    """Answer each request of a connection with the next of these bytes, the last one for ever."""

    async def script(wire: Wire) -> None:
        number = 0
        while True:
            await wire.request()
            await wire.send(answers[min(number, len(answers) - 1)])
            number += 1

    return script


def once(*pieces: bytes) -> Script:
    """Read one request, send these pieces, close."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.send(*pieces)

    return script


def in_turn(*scripts: Script) -> Script:
    """The first connection gets the first script, and so on."""

    async def script(wire: Wire) -> None:
        await scripts[wire.vendor.connections - 1](wire)

    return script


def sized(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A response with a content-length."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, lines, len(body), body)


def chunked(*chunks: bytes) -> bytes:
    """A whole chunked response."""
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n"
