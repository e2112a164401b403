"""The stage on which all cases are played: one vendor, and the session's gateway."""

from collections.abc import Callable, Iterator

import pytest

from tests.api.conftest import caller
from tests.cases.runner import Case, Stage, is_served, put_on
from tests.cases.wire import CaseVendor
from tests.stack import Stack, until

__all__ = ["caller"]


@pytest.fixture(scope="session")
def case_vendor() -> Iterator[CaseVendor]:
    with CaseVendor() as vendor:
        yield vendor


@pytest.fixture(scope="session")
def gateways(stack: Stack) -> Callable[[str], str]:
    """URLs of gateways by name; all but the usual one start when a case first asks for them."""
    urls = {"usual": stack.base_url}
    settings = {
        "restless": {
            "FARTHING_HEARTBEAT_S": "0.3",
            "FARTHING_CORS_ORIGINS": "https://app.example",
        },
    }

    def url_of(name: str) -> str:
        if name not in urls:
            _, urls[name] = stack.serve(name, "gateway.asgi:application", **settings[name])
        return urls[name]

    return url_of


@pytest.fixture(scope="session")
def served() -> set[str]:
    """Models that the gateway of their case is known to serve."""
    return set()


@pytest.fixture
def stage(
    request: pytest.FixtureRequest,
    stack: Stack,
    case_vendor: CaseVendor,
    gateways: Callable[[str], str],
    served: set[str],
    caller: Callable,
) -> Stage:
    """Puts on all `CASES` of the test's module before its first one is played."""
    cases: list[Case] = request.module.CASES
    if any(case.model not in served for case in cases):
        put_on(case_vendor, cases)
        poor = caller(balance="0")
        last = {case.gateway: case for case in cases}
        until(lambda: all(is_served(gateways(name), case, poor) for name, case in last.items()))
        served.update(case.model for case in cases)
    return Stage(case_vendor, stack, gateways, caller)
