import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.supervisor import serve

PROJECT = Path(serve.__file__).resolve().parents[2]
APPLICATION = """
import asyncio

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                print("shut down", flush=True)
                return
    host, port = scope["client"]
    said, more = b"", True
    while more:
        message = await receive()
        said += message.get("body", b"")
        more = message.get("more_body", False)
    said = said or host.encode()
    headers = [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})
"""


def start(listener: socket.socket, folder: Path) -> subprocess.Popen:
    (folder / "serve_probe.py").write_text(APPLICATION)
    descriptor = str(listener.fileno())
    argv = [sys.executable, "-m", "gateway.supervisor.serve", descriptor, "serve_probe:application"]
    return subprocess.Popen(
        argv,
        pass_fds=[listener.fileno()],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )


def ask(listener: socket.socket) -> bytes:
    host, port = listener.getsockname()
    with urllib.request.urlopen(f"http://{host}:{port}/", timeout=20) as answer:
        assert "server" not in {name.lower() for name in answer.headers}
        return answer.read()


def test_a_process_announces_itself_answers_and_leaves_the_socket_to_the_next(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with start(listener, tmp_path) as first:
            assert first.stdout.readline() == serve.READY_LINE + "\n"
            assert ask(listener) == b"127.0.0.1"
            first.kill()
        with start(listener, tmp_path) as second:
            assert ask(listener) == b"127.0.0.1"
            second.send_signal(signal.SIGTERM)
            assert second.stdout.read() == serve.READY_LINE + "\nshut down\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[socket.socket]:
    folder = tmp_path_factory.mktemp("serve")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        start(listener, folder) as process,
    ):
        assert process.stdout.readline() == serve.READY_LINE + "\n"
        yield listener
        process.send_signal(signal.SIGTERM)
        process.stdout.read()


def say(listener: socket.socket, *pieces: bytes) -> bytes:
    """Send a request's pieces as far as they are taken; return all that is answered."""
    with socket.create_connection(listener.getsockname(), timeout=20) as wire:
        with contextlib.suppress(OSError):
            for piece in pieces:
                wire.sendall(piece)
        with contextlib.suppress(ConnectionResetError):
            return b"".join(iter(lambda: wire.recv(65_536), b""))
    return b""


POST = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close%b\r\n%bContent-Length: 5\r\n\r\n"


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE"])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_the_body_behind_an_offer_of_another_protocol_is_read(served, name, protocol):
    head = POST % (b", Upgrade, HTTP2-Settings", name + b": " + protocol + b"\r\n")
    assert say(served, head + b"hello").endswith(b"hello")
    assert say(served, head, b"hello").endswith(b"hello")


def test_what_looks_like_an_offer_in_a_body_is_left_alone(served):
    body = b"a\r\n\r\nb\r\nUpgrade: c"
    head = POST.replace(b"5", b"%d") % (b"", b"", len(body))
    assert say(served, head + body).endswith(body)
    assert say(served, head, body).endswith(body)


def test_a_head_is_bounded(served):
    fitting = POST % (b"", b"X-A: " + b"a" * 60_000 + b"\r\n")
    assert say(served, fitting, b"hello").endswith(b"hello")
    for endless in (b"X-A: " + b"a" * 65_536, b"X-A: a\r\n" * 10_000):
        answer = say(served, b"GET / HTTP/1.1\r\n", *[endless] * 20)
        assert answer.startswith(b"HTTP/1.1 400 ") or not answer
    assert ask(served) == b"127.0.0.1"


def test_an_application_that_cannot_be_loaded_is_never_announced(tmp_path):
    (tmp_path / "serve_probe.py").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        argv = [sys.executable, "-m", "gateway.supervisor.serve", str(listener.fileno()), "none:x"]
        done = subprocess.run(
            argv,
            pass_fds=[listener.fileno()],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            check=False,
        )
    assert done.returncode != 0
    assert serve.READY_LINE not in done.stdout
