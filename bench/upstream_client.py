"""Requests and streamed events per CPU-second: our upstream client beside aiohttp.

Run from the repository's root: `python -m bench.upstream_client [seconds]`. The vendor is a raw
asyncio server in a process of its own, so that `time.process_time` sees the client alone.
"""

import asyncio
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import aiohttp
import uvloop

from gateway.upstream import Timeouts, Upstream

CONCURRENCY = 64
ROUNDS = 3
EVENTS = 52
BODY = b'{"model":"echo","messages":[{"role":"user","content":"benchmark"}]}'
HEADERS = [
    (b"authorization", b"Bearer 0123456789abcdef"),
    (b"content-type", b"application/json"),
    (b"accept", b"application/json"),
    (b"user-agent", b"farthing"),
]
ANSWER = b'{"id":"chatcmpl-1","choices":[{"message":{"content":"' + b"x" * 200 + b'"}}]}'
EVENT = b'data: {"id":"chatcmpl-1","choices":[{"delta":{"content":"word"}}]}\n\n'
PLAIN = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: Sat, 22 Aug 2026 14:01:33 GMT\r\n"
    b"server: bench\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)

Call = Callable[[str], Awaitable[None]]


class Vendor(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.seen = b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        if not self.seen.endswith(BODY):
            return
        is_stream = self.seen.startswith(b"POST /stream")
        self.seen = b""
        if not is_stream:
            self.transport.write(PLAIN)
            return
        self.transport.write(STREAM_HEAD)
        self._send_event(EVENTS)

    def _send_event(self, left: int) -> None:
        if left:
            self.transport.write(CHUNK)
            asyncio.get_running_loop().call_soon(self._send_event, left - 1)
        else:
            self.transport.write(b"0\r\n\r\n")


def serve(listener: socket.socket) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Vendor, sock=listener)
        await server.serve_forever()

    uvloop.run(main())


async def calls_per_cpu_second(call: Call, path: str, seconds: float) -> float:
    done = 0
    ends = time.monotonic() + seconds

    async def caller() -> None:
        nonlocal done
        while time.monotonic() < ends:
            await call(path)
            done += 1

    used = time.process_time()
    await asyncio.gather(*(caller() for _ in range(CONCURRENCY)))
    return done / (time.process_time() - used)


async def measure(port: int, seconds: float) -> None:
    base_url = f"http://127.0.0.1:{port}"
    upstream = Upstream(
        base_url, timeouts=Timeouts(5.0, 60.0, 30.0, 600.0), max_connections=CONCURRENCY
    )
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY))
    aiohttp_headers = {name.decode(): value.decode() for name, value in HEADERS}

    async def ours(path: str) -> None:
        response = await upstream.open(path, HEADERS, BODY)
        while await response.read():
            pass

    async def theirs(path: str) -> None:
        async with session.post(base_url + path, data=BODY, headers=aiohttp_headers) as response:
            async for _ in response.content.iter_any():
                pass

    clients = {"ours": ours, "aiohttp": theirs}
    results: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name, call in clients.items():
            for path in ("/plain", "/stream"):
                rate = await calls_per_cpu_second(call, path, seconds)
                results.setdefault((name, path), []).append(rate)
    for (name, path), rates in sorted(results.items()):
        rate = statistics.median(rates) * (EVENTS if path == "/stream" else 1)
        unit = "events" if path == "/stream" else "requests"
        print(f"{name:8} {path:8} {rate:10,.0f} {unit} per CPU-second")
    await session.close()
    await upstream.close()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    listener = socket.create_server(("127.0.0.1", 0))
    vendor = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
    vendor.start()
    try:
        uvloop.run(measure(listener.getsockname()[1], seconds))
    finally:
        vendor.terminate()
        vendor.join()


if __name__ == "__main__":
    main()
