import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

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
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": host.encode()})
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
