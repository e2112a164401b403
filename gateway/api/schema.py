"""What the OpenAPI document says beyond what drf-spectacular reads from the views."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from django.urls import include, path
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.plumbing import resolve_type_hint
from drf_spectacular.utils import OpenApiParameter, extend_schema

from gateway.relay.assemble import MAX_CHOICES
from gateway.relay.request import MAX_MODEL_CHARS, MAX_OUTPUT_TOKENS

Method = TypeVar("Method", bound=Callable[..., Any])

RELAY_REFUSALS = (400, 401, 402, 403, 404, 409, 413, 415, 422, 429, 500, 502, 503, 504)
RELAY_DESCRIPTION = (
    "Takes what OpenAI's chat completions take and passes it on untouched, but for the model's "
    "name. With `stream` true the answer is a stream of server-sent events. `x-request-id` names "
    "the request in `GET /v1/requests/{id}`; `x-should-retry: false` stands on every failure "
    "that may have cost money."
)
COUNT_REFUSALS = (400, 401, 403, 404, 413, 503)
COUNT_DESCRIPTION = (
    "Takes the body of a chat completion, sends it nowhere, and costs and holds nothing. `cost` is "
    "at the price that is in force for this key now; `worst_case` has the longest answer that "
    "`max_tokens` (or the model) allows. An `Idempotency-Key` is accepted and changes nothing: the "
    "same body has the same count."
)
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "pattern": r"^[\u0021-\u007e]{1,255}$"},
    OpenApiParameter.HEADER,
    description="A repeat within a day gets the first answer once more, and costs nothing.",
)
_CONTROLS = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
_MODEL_PATTERN = rf"^[^{_CONTROLS}]*[^{_CONTROLS}\s][^{_CONTROLS}]*$"


def _counted(limit: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": limit, "nullable": True}


CHAT_REQUEST_SCHEMA = {
    "application/json": {
        "type": "object",
        "required": ["model", "messages"],
        "additionalProperties": True,
        "properties": {
            "model": {"type": "string", "maxLength": MAX_MODEL_CHARS, "pattern": _MODEL_PATTERN},
            "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
            "stream": {"type": "boolean", "default": False, "nullable": True},
            "max_tokens": _counted(MAX_OUTPUT_TOKENS),
            "max_completion_tokens": _counted(MAX_OUTPUT_TOKENS),
            "n": _counted(MAX_CHOICES),
            "stream_options": {
                "type": "object",
                "nullable": True,
                "properties": {
                    "include_usage": {"type": "boolean", "default": False, "nullable": True}
                },
            },
        },
    }
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": "string", "nullable": True},
                "code": {"type": "string"},
            },
        }
    },
}
ERROR_SCHEMA = {"$ref": "#/components/schemas/Error"}


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # no stubs
    target_class = "gateway.api.authentication.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:  # noqa: ARG002
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of your organisation: `sk_live_…`, or `sk_test_…`.",
        }


def answers(
    shape: Any, *, operation: str, summary: str, may_be_missing: bool = False
) -> Callable[[Method], Method]:
    """Describe a view's answer to the OpenAPI schema by its type."""
    refusals = (401, 403, 404, 503) if may_be_missing else (401, 403, 503)
    answer = resolve_type_hint(shape)  # type: ignore[no-untyped-call]  # no stubs
    return extend_schema(
        operation_id=operation,
        summary=summary,
        responses={200: answer, **dict.fromkeys(refusals, ERROR_SCHEMA)},
    )


@lru_cache(maxsize=1)  # the code does not change while it runs
def document() -> dict[str, Any]:
    """Return the OpenAPI document of everything under /v1/."""
    patterns = [path("v1/", include("gateway.api.urls"))]
    generator = SchemaGenerator(patterns=patterns)  # type: ignore[no-untyped-call]  # no stubs
    made = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    made["components"].setdefault("schemas", {})["Error"] = _ERROR_SCHEMA
    for path_item in made["paths"].values():
        if "post" in path_item:
            path_item["post"]["requestBody"]["required"] = True  # no request may do without
    return cast("dict[str, Any]", made)
