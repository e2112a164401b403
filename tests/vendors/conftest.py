"""Real vendors: llama.cpp's server with a tiny model of Qwen's vocabulary, and what stands between.

The model is made once and kept in pytest's cache, under the fingerprint of what makes it.
"""

import contextlib
import hashlib
import inspect
import json
import os
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.api.conftest import Caller
from tests.stack import Process, free_port, until
from tests.vendors import tiny_model

SERVER = Path(__file__).parent / "llama_server.py"
START_SECONDS = 60.0
FAMILY = "qwen3-nothink"  # Qwen 3's template on a server that switches thinking off


@pytest.fixture(scope="session")
def tiny_gguf(pytestconfig: pytest.Config) -> Path:
    recipe = inspect.getsource(tiny_model).encode()
    folder = pytestconfig.cache.mkdir("tiny_model")
    path = folder / f"{hashlib.sha256(recipe).hexdigest()[:16]}.gguf"
    if not path.exists():
        for old in folder.glob("*.gguf"):
            old.unlink()
        new = path.with_suffix(f".{os.getpid()}.new")
        tiny_model.write_gguf(tiny_model.make(), new)
        new.replace(path)
    return path


def is_up(url: str) -> bool:
    """False also for llama.cpp's 503 while it loads."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
        return answer.status == 200
    return False


@pytest.fixture(scope="session")
def llama(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a running llama.cpp server."""
    port = free_port()
    process = Process(
        [sys.executable, str(SERVER), str(tiny_gguf), str(port)],
        dict(os.environ),
        tmp_path_factory.mktemp("llama") / "llama.log",
    ).start()

    def loaded() -> bool:
        assert process.popen.poll() is None, process.text()[-3000:]
        return is_up(f"http://127.0.0.1:{port}/health")

    try:
        until(loaded, START_SECONDS)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.stop()


# --- a vendor that says nothing of what it counted ----------------------------------------------


@dataclass
class Silencer:
    """A proxy that takes usage out of every answer and keeps it, by the request's `seed`."""

    base_url: str
    said: dict[int | None, dict] = field(default_factory=dict)

    def without_usage(self, body: bytes, content_type: str, seed: int | None) -> bytes:
        if not content_type.startswith("text/event-stream"):
            return self._stripped(body, seed)
        events = (self._event(event, seed) for event in body.split(b"\n\n") if event)
        return b"".join(b"%b\n\n" % event for event in events)

    def _event(self, event: bytes, seed: int | None) -> bytes:
        """Comments and the end pass as they are."""
        if not event.startswith(b"data: {"):
            return event
        return b"data: %b" % self._stripped(event.removeprefix(b"data: "), seed)

    def _stripped(self, text: bytes, seed: int | None) -> bytes:
        answer = json.loads(text)
        answer.pop("timings", None)
        if "usage" in answer:
            self.said[seed] = answer.pop("usage")
        return json.dumps(answer).encode()


@contextlib.contextmanager
def silenced(base_url: str) -> Iterator[Silencer]:
    """The proxy before a vendor."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            url = base_url.removesuffix("/v1") + self.path
            headers = {"content-type": "application/json"}
            with urllib.request.urlopen(
                urllib.request.Request(url, body, headers), timeout=30
            ) as answer:
                content_type = answer.headers["content-type"]
                seed = json.loads(body).get("seed")
                stripped = proxy.without_usage(answer.read(), content_type, seed)
            self.send_response(answer.status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(stripped)))
            self.end_headers()
            self.wfile.write(stripped)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy = Silencer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="session")
def silencer(llama: str) -> Iterator[Silencer]:
    with silenced(llama) as proxy:
        yield proxy


# --- both behind the gateway --------------------------------------------------------------------


@pytest.fixture
def caller(stack, committed, world) -> Callable[[], Caller]:
    def make() -> Caller:
        tenant = world.tenant()
        created = world.key(tenant)
        return Caller(stack.base_url, created.secret, tenant, created.key)

    return make


@pytest.fixture
def routed(stack, committed, world, caller) -> Callable[..., Caller]:
    """Makes a model of that name at the base URL, and a caller whom the gateway answers for it."""
    from gateway.models import KEYLESS, Model, Route, Vendor

    def make(name: str, base_url: str, vendor_model: str = "tiny") -> Caller:
        alice = caller()
        if not Model.objects.filter(name=name).exists():
            vendor = Vendor.objects.create(name=name, base_url=base_url, credential=KEYLESS)
            world.price(name)
            model = Model.objects.create(name=name, family=FAMILY)
            Route.objects.create(model=model, vendor=vendor, vendor_model=vendor_model)
        until(lambda: alice.chat(name).status_code == 200)  # the gateway has heard of it
        return alice

    return make
