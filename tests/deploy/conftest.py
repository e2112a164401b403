"""The proxies of deploy/, as Debian has them, before a gateway that trusts them.

The examples are run as they stand, but for ports, the certificate and where to write.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.raw_vendor import ENDING, RawVendor, chunk
from tests.stack import ROOT, Process, answers, free_port, until

SITE = "farthing.example"
PROXY = "127.0.0.1"  # where both connect from, and all that the gateway trusts
INSIDE, OUTSIDE = "127.0.0.7", "127.0.0.8"  # clients
MODEL = "deploy-gated"
NGINX = """\
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 128; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/farthing.conf;
}}
"""


def gated(call) -> None:
    """Say something, wait until the test lets go or the caller leaves, say the rest."""
    call.stream(chunk("Hello"))
    while not call.vendor.go.is_set():
        call.pause(0.05)
        if call.left.is_set():
            return
    call.send(chunk(" world") + ENDING)


@dataclass
class Ground:
    folder: Path
    vendor: RawVendor
    gateway_port: int
    authority: trustme.CA = field(default_factory=trustme.CA)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway_port}"

    def certificate(self) -> tuple[Path, Path, Path]:
        """The authority's, the site's and its key, as files."""
        issued = self.authority.issue_cert(SITE)
        files = tuple(self.folder / name for name in ("ca.pem", "site.pem", "site.key"))
        self.authority.cert_pem.write_to_path(files[0])
        issued.cert_chain_pems[0].write_to_path(files[1])
        issued.private_key_pem.write_to_path(files[2])
        return files


@pytest.fixture(scope="package")
def ground(stack, django_db_setup, django_db_blocker, tmp_path_factory) -> Iterator[Ground]:
    with RawVendor({MODEL: gated}) as vendor, django_db_blocker.unblock():
        make_model(vendor)
        gateway, url = stack.serve(
            "deploy",
            "gateway.asgi:application",
            FARTHING_TRUSTED_PROXIES=PROXY,
            FARTHING_HTTPS="1",
            FARTHING_ALLOWED_HOSTS=SITE,
        )
        port = int(url.rpartition(":")[2])
        yield Ground(tmp_path_factory.mktemp("deploy"), vendor, port)
        gateway.stop()


def make_model(vendor: RawVendor) -> None:
    from django.utils import timezone

    from billing.models import Price
    from gateway.models import KEYLESS, Model, Route, Vendor

    row = Vendor.objects.create(name=MODEL, base_url=vendor.url("deploy"), credential=KEYLESS)
    nanos = {"input_nanos": 1_000_000_000, "output_nanos": 4_000_000_000}
    Price.objects.create(model=MODEL, currency="USD", effective_from=timezone.now(), **nanos)
    model = Model.objects.create(name=MODEL)
    Route.objects.create(model=model, vendor=row, vendor_model=MODEL)


# --- the two proxies --------------------------------------------------------------------------


def replaced(text: str, changes: dict[str, str]) -> str:
    """Each of them stands in the example exactly once."""
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def caddy(ground: Ground, port: int, _plain_port: int) -> Process:
    _, certificate, key = ground.certificate()
    example = (ROOT / "deploy/Caddyfile").read_text()
    changes = {
        "{\n\tservers {": "{\n\tadmin off\n\tauto_https disable_redirects\n\tservers {",
        f"{SITE} {{": f"{SITE}:{port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}",
        "127.0.0.1:8000": f"127.0.0.1:{ground.gateway_port}",
    }
    config = ground.folder / "Caddyfile"
    config.write_text(replaced(example, changes))
    homes = {name: str(ground.folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    command = ["caddy", "run", "--config", str(config), "--adapter", "caddyfile"]
    return Process(command, {**os.environ, **homes}, ground.folder / "caddy.log")


def nginx(ground: Ground, port: int, plain_port: int) -> Process:
    _, certificate, key = ground.certificate()
    example = (ROOT / "deploy/nginx.conf").read_text()
    changes = {
        "    listen 443 ssl http2;": f"    listen 127.0.0.1:{port} ssl http2;",
        "    listen [::]:443 ssl http2;\n": "",
        "    listen 80;": f"    listen 127.0.0.1:{plain_port};",
        "    listen [::]:80;\n": "",
        f"/etc/ssl/{SITE}.pem": str(certificate),
        f"/etc/ssl/private/{SITE}.key": str(key),
        "127.0.0.1:8000": f"127.0.0.1:{ground.gateway_port}",
    }
    folder = ground.folder
    (folder / "farthing.conf").write_text(replaced(example, changes))
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    command = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-e", "start.log"]
    return Process(command, dict(os.environ), folder / "nginx.log")


@dataclass
class Front:
    """One proxy with the gateway behind it, and curl before it."""

    name: str
    ground: Ground
    port: int
    plain_port: int
    authority: Path

    @property
    def url(self) -> str:
        return f"https://{SITE}:{self.port}"

    def command(self, path: str, *options: str, source: str = INSIDE) -> list[str]:
        return [
            *("curl", "--silent", "--no-buffer", "--interface", source, "--max-time", "20"),
            *("--cacert", str(self.authority), "--resolve", f"{SITE}:{self.port}:127.0.0.1"),
            *("--write-out", "\n%{http_code} %{http_version}", *options, f"{self.url}{path}"),
        ]

    def curl(self, path: str, *options: str, source: str = INSIDE) -> tuple[str, str]:
        """The body, and "status version"."""
        done = subprocess.run(
            self.command(path, *options, source=source), capture_output=True, text=True, check=True
        )
        body, _, told = done.stdout.rpartition("\n")
        return body, told


@pytest.fixture(scope="package", params=[caddy, nginx], ids=["caddy", "nginx"])
def front(request, ground: Ground) -> Iterator[Front]:
    port, plain_port = free_port(), free_port()
    make: Callable[..., Process] = request.param
    process = make(ground, port, plain_port).start()
    authority = ground.folder / "ca.pem"

    def is_up() -> bool:
        assert process.popen.poll() is None, process.text()[-3000:]
        return answers(port)

    try:
        until(is_up)
        yield Front(make.__name__, ground, port, plain_port, authority)
    finally:
        process.stop()


@pytest.fixture
def account(ground: Ground, committed, world) -> Callable[..., Any]:
    from tests.clients.conftest import Account

    def make(**limits: Any) -> Account:
        tenant = world.tenant()
        return Account(f"{ground.url}/v1", world.key(tenant, **limits).secret, tenant)

    return make


@pytest.fixture
def go(ground: Ground) -> Iterator[Any]:
    ground.vendor.go.clear()
    yield ground.vendor.go
    ground.vendor.go.set()
