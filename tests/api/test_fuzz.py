"""Our own OpenAPI document, played at random against the running gateway.

For each operation `EXAMPLES`, and those that schemathesis makes of every bound and every type in
the document: some 700 requests in all, always the same ones.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import positive_data_acceptance

from gateway.api.schema import document
from tests.api.conftest import Caller
from tests.stack import Stack

EXAMPLES = 30
MODEL = "farthing-echo"
BEYOND_SCHEMAS = {"invalid_number", "nested_too_deeply", "key_reused"}
"""A schema has no words for what a double holds, for depth, and for what came before."""


def with_a_model_that_is_served() -> dict[str, Any]:
    """The document with the only model that there is, so that requests come through to a vendor."""
    made = deepcopy(document())
    for path in ("/v1/chat/completions", "/v1/tokens/count"):
        body = made["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        body["properties"]["model"] = {"enum": [MODEL]}
    (parameter,) = made["paths"]["/v1/models/{model}"]["get"]["parameters"]
    parameter["schema"] = {"enum": [MODEL]}
    return made


DETERMINED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module", autouse=True)
def nothing_raises(stack: Stack) -> Iterator[None]:
    before = tracebacks(stack)
    yield
    assert tracebacks(stack) == before


def tracebacks(stack: Stack) -> int:
    return sum(process.text().count("Traceback") for process in stack.processes)


@pytest.fixture
def rich(caller) -> Caller:
    return caller(balance="10000000")


def check(case: schemathesis.Case, caller: Caller) -> None:
    """And so no answer is a failure of ours."""
    answer = case.call(base_url=caller.base_url, headers=caller.headers)
    excluded = [positive_data_acceptance] if code_of(answer) in BEYOND_SCHEMAS else []
    case.validate_response(answer, excluded_checks=excluded)


def code_of(answer: schemathesis.Response) -> str | None:
    return answer.json()["error"]["code"] if answer.status_code >= 400 else None


def played(document: dict[str, Any], name: str, *paths: str) -> dict[str, Any]:
    """Make a test of each operation under the paths that begin so.

    Each has a name of its own: schemathesis' own items share one, and xdist runs a name once.
    """
    schema = schemathesis.openapi.from_dict(document)
    found = {}
    for path, methods in document["paths"].items():
        for operation in methods.values() if path.startswith(paths) else ():

            def test(case: schemathesis.Case, rich: Caller) -> None:
                check(case, rich)

            test.__name__ = f"test_{operation['operationId']}_{name}"
            chosen = schema.include(operation_id=operation["operationId"])
            found[test.__name__] = chosen.parametrize()(DETERMINED(test))
    return found


globals().update(played(document(), "answers_what_the_document_promises", "/v1/"))
globals().update(
    played(
        with_a_model_that_is_served(),
        "does_so_where_a_model_is_served",
        "/v1/chat/completions",
        "/v1/tokens/count",
        "/v1/models/",
    )
)
