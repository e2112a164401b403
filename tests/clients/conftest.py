"""Client programs: each runs once a session, and is told what to do a line at a time."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.stack import ROOT, until

HERE = Path(__file__).parent
PYTHON = ROOT / "var/clients/bin/python"
COMMANDS = {
    "openai": ["node", str(HERE / "node/openai.mjs")],
    "ai": ["node", str(HERE / "node/ai.mjs")],
    "langchain": [str(PYTHON), str(HERE / "langchain_acts.py")],
}
ENVIRONMENT = {"PATH": os.environ["PATH"], "LANGSMITH_TRACING": "false", "NO_COLOR": "1"}
END_SECONDS = 5


@dataclass
class Program:
    name: str
    popen: subprocess.Popen

    def does(self, act: str, **job: Any) -> dict[str, Any]:
        self.popen.stdin.write(json.dumps({"act": act, **job}).encode() + b"\n")
        self.popen.stdin.flush()
        line = self.popen.stdout.readline()
        assert line, f"{self.name} has ended; what it needs is made by `make clients`"
        return json.loads(line)


@pytest.fixture(scope="session")
def programs() -> Iterator[Callable[[str], Program]]:
    running: dict[str, Program] = {}
    with contextlib.ExitStack() as ends:

        def program(name: str) -> Program:
            if name not in running:
                pipe = subprocess.PIPE
                popen = subprocess.Popen(COMMANDS[name], stdin=pipe, stdout=pipe, env=ENVIRONMENT)
                ends.callback(popen.stdout.close)
                ends.callback(popen.wait, END_SECONDS)
                ends.callback(popen.stdin.close)
                running[name] = Program(name, popen)
            return running[name]

        yield program


@dataclass
class Account:
    """A tenant with one key, and what the ledger says of it."""

    base_url: str
    secret: str
    tenant: Any

    def exchanges(self, count: int = 1) -> list[Any]:
        """All of the tenant's, once so many are settled and none is open."""
        from billing.models import Exchange

        of_tenant = Exchange.objects.select_related("charge").filter(tenant_id=self.tenant.pk)
        until(lambda: of_tenant.filter(state="settled").count() >= count)
        assert of_tenant.count() == count
        return list(of_tenant)

    def exchange(self) -> Any:
        """The only one: nothing was sent twice."""
        (exchange,) = self.exchanges()
        return exchange


@pytest.fixture
def account(stack, committed, world) -> Callable[..., Account]:
    def make(balance: str = "10", **limits: Any) -> Account:
        tenant = world.tenant(balance=balance)
        secret = world.key(tenant, **limits).secret
        return Account(f"{stack.base_url}/v1", secret, tenant)

    return make


@pytest.fixture
def hasty(stack, committed, world, account) -> str:
    """A model whose vendor is given 0.3 s for its first byte, and never sends one."""
    import requests

    from gateway.models import KEYLESS, Model, Route, Vendor

    name = "clients-hasty"
    if not Model.objects.filter(name=name).exists():
        vendor = Vendor.objects.create(
            name=name,
            base_url=stack.benchecho_url,
            credential=KEYLESS,
            first_byte_timeout_ms=300,
        )
        world.price(name)
        model = Model.objects.create(name=name, family="openai-o200k")
        Route.objects.create(model=model, vendor=vendor, vendor_model="echo-never")
        probe = account()
        listed = lambda: requests.get(  # noqa: E731
            f"{probe.base_url}/models/{name}",
            headers={"Authorization": f"Bearer {probe.secret}"},
            timeout=5,
        )
        until(lambda: listed().status_code == 200)
    return name
