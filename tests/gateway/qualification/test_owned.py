import os
import sys
import textwrap
from pathlib import Path

import pytest

from gateway.qualification.owned import ServerDidNotStartError, owned_server
from tests.stack import free_port, until

SERVER = """
    import http.server, json, os, signal, subprocess, sys
    port, folder, *how = sys.argv[1:]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(f"{folder}/pids", "w").write(f"{os.getpid()} {child.pid}")
    open(f"{folder}/names", "w").write(" ".join(os.environ))
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.end_headers()
        def log_message(self, *words): pass
    http.server.HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""


@pytest.fixture
def command(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(textwrap.dedent(SERVER))
    port = free_port()

    def make(*how: str) -> tuple[str, str]:
        words = [sys.executable, str(script), str(port), str(tmp_path), *how]
        return " ".join(words), f"http://127.0.0.1:{port}/v1"

    return make


def is_running(pid: int) -> bool:
    """False for one that has ended and waits for its parent to be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("how", [(), ("deaf",)])
def test_it_runs_for_the_block_and_leaves_no_process(command, tmp_path, how, monkeypatch):
    monkeypatch.setattr("gateway.qualification.owned.STOP_S", 1.0)
    with owned_server(*command(*how)) as server:
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(is_running, pids))
        assert not server.is_stopped
    assert server.is_stopped
    until(lambda: not any(map(is_running, pids)))


def test_it_is_stopped_where_the_block_fails(command, tmp_path):
    with pytest.raises(ZeroDivisionError), owned_server(*command()) as server:
        raise ZeroDivisionError
    assert server.is_stopped


def test_our_secrets_are_not_in_its_environment(command, tmp_path):
    with owned_server(*command()):
        names = (tmp_path / "names").read_text().split()
    assert "FARTHING_SECRET_KEY" in os.environ
    assert "PATH" in names
    assert not [name for name in names if name.startswith(("FARTHING_", "DATABASE_", "REDIS_"))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/no/such/program --port 1", "'/no/such/program --port 1' cannot be run: "),
        ("unbalanced 'quote", "cannot be run: No closing quotation"),
        ("false", "The server ended with code 1."),
    ],
)
def test_a_command_that_does_not_run_is_told(text, words):
    url = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(ServerDidNotStartError, match=words), owned_server(text, url):
        raise AssertionError


def test_a_server_that_does_not_answer_is_stopped_again(tmp_path):
    url = f"http://127.0.0.1:{free_port()}/v1"
    words = r"The server did not answer within 0\.5 s\."
    command = f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600'"
    with (
        pytest.raises(ServerDidNotStartError, match=words),
        owned_server(command, url, start_s=0.5),
    ):
        raise AssertionError
    until(lambda: not is_running(int((tmp_path / "pid").read_text())))


def test_an_empty_command_is_told():
    with pytest.raises(ServerDidNotStartError), owned_server("", "http://127.0.0.1:1/v1"):
        raise AssertionError
