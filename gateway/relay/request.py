"""Read a client's chat request: hostile until shown otherwise, and otherwise untouched."""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

from gateway.errors import ApiError, invalid_request, too_large
from gateway.relay.assemble import MAX_CHOICES
from gateway.relay.inflate import InflatedTooLargeError, InflateError, Inflater
from gateway.relay.json_text import is_deeper_than

MAX_BODY_BYTES = 50 * 1024 * 1024
"""Of the body as sent and, where it is compressed, of what comes out."""
MAX_DEPTH = 100
"""Levels of nesting; everything that later walks a body may recurse this far."""
MAX_MODEL_CHARS = 256
MAX_OUTPUT_TOKENS = 2**31 - 1
MAX_PARAM_CHARS = 64

ROUTING_FIELDS = frozenset(
    {
        "api_base",
        "api_key",
        "api_type",
        "api_version",
        "aws_access_key_id",
        "aws_bedrock_runtime_endpoint",
        "aws_region_name",
        "aws_secret_access_key",
        "aws_session_token",
        "azure_ad_token",
        "azure_endpoint",
        "base_url",
        "custom_llm_provider",
        "deployment_id",
        "extra_body",
        "extra_headers",
        "extra_query",
        "fallbacks",
        "headers",
        "mock_response",
        "model_list",
        "models",
        "num_retries",
        "organization",
        "proxy",
        "route",
        "vertex_credentials",
        "vertex_location",
        "vertex_project",
    }
)
"""Fields that steer other gateways: where a request goes, with whose key, as which model."""

UTF8_NAMES = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
UTF8_BOM = b"\xef\xbb\xbf"

_CHARSET = re.compile(r"""charset\s*=\s*["']?([^"';\s]*)""", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789E", b"000000000e")
_SIGNS = b"+-"
_LONG_NUMBER = b"0" * 17
_LONG_EXPONENT = b"e000"
_MAX_INTEGER_DIGITS = 20


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A checked request.

    `payload` is the decoded body without `dropped` fields, in the client's order; treat it as
    read-only. `include_usage` says whether the client asked for usage in its stream.
    `max_output_tokens` is per choice, None where the client set no bound.
    """

    model: str
    stream: bool
    include_usage: bool
    max_output_tokens: int | None
    n: int
    payload: dict[str, Any]
    dropped: tuple[str, ...] = ()


def read_request(
    body: bytes,
    *,
    content_type: str = "application/json",
    content_encoding: str = "",
    max_body_bytes: int = MAX_BODY_BYTES,
) -> ClientRequest:
    """Check a body and return what the relay needs of it; raise `ApiError` 400 or 413."""
    if len(body) > max_body_bytes:
        raise too_large(max_body_bytes)
    if content_encoding and content_encoding.lower() != "identity":
        body = _inflate(body, content_encoding, max_body_bytes)
    if "charset" in content_type.lower():
        _check_charset(content_type)
    payload = _decode(body.removeprefix(UTF8_BOM))
    return _client_request(payload)


def vendor_body(request: ClientRequest, *, vendor_model: str, include_usage: bool) -> bytes:
    """Return the body for a vendor: its own model name, usage asked for, nothing else changed.

    `include_usage` False is for a vendor that refuses the option: it is taken out even where the
    client set it.
    """
    changed: dict[str, Any] = {"model": vendor_model}
    payload = request.payload
    if request.stream:
        options = payload.get("stream_options") or {}
        if include_usage:
            changed["stream_options"] = {**options, "include_usage": True}
        elif "stream_options" in payload:
            changed["stream_options"] = {k: v for k, v in options.items() if k != "include_usage"}
            if not changed["stream_options"]:
                del changed["stream_options"]
                payload = {k: v for k, v in payload.items() if k != "stream_options"}
    return orjson.dumps({**payload, **changed})


def _client_request(payload: dict[str, Any]) -> ClientRequest:
    model = _model(payload)
    _check_messages(payload)
    stream = _flag(payload.get("stream"), "stream")
    options = payload.get("stream_options")
    if options is not None and not isinstance(options, dict):
        _wrong_type("stream_options", "an object")
    wish = options.get("include_usage") if options else None
    include_usage = _flag(wish, "stream_options.include_usage")
    max_output_tokens = _max_output_tokens(payload)
    choices = _integer(payload, "n", MAX_CHOICES) or 1
    dropped = _drop_routing(payload)
    if not stream:
        payload.pop("stream_options", None)
    return ClientRequest(
        model, stream, include_usage and stream, max_output_tokens, choices, payload, dropped
    )


def _inflate(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    try:
        inflater = Inflater(encoding, base_bytes=limit_bytes, ratio=0)
        plain = inflater.feed(body)
    except InflatedTooLargeError:
        raise too_large(limit_bytes) from None
    except InflateError:
        raise _bad_encoding() from None
    if not inflater.ended:
        raise _bad_encoding()
    return plain


def _bad_encoding() -> ApiError:
    return invalid_request(
        "The body's Content-Encoding is not gzip or deflate, or the data is damaged.",
        param="content-encoding",
        code="invalid_content_encoding",
    )


def _check_charset(content_type: str) -> None:
    match = _CHARSET.search(content_type)
    if match is None or match[1].lower() not in UTF8_NAMES:
        raise invalid_request(
            "The body must be UTF-8; another charset was named.",
            param="content-type",
            code="invalid_charset",
        )


def _decode(body: bytes) -> dict[str, Any]:
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid_request(
            f"The body is not valid JSON, at line {error.lineno} column {error.colno}.",
            param="body",
            code="invalid_json",
        ) from None
    if not isinstance(payload, dict):
        _wrong_type("body", "a JSON object")
    try:
        canonical = orjson.dumps(payload)
    except TypeError:  # orjson writes 254 levels and no more
        raise _too_deep() from None
    if canonical != body and _may_have_lost(body, canonical):
        _check_strictly(body)
    is_branched = canonical.count(b"{") + canonical.count(b"[") > MAX_DEPTH
    if is_branched and is_deeper_than(MAX_DEPTH, payload):
        raise _too_deep()
    return payload


def _may_have_lost(body: bytes, canonical: bytes) -> bool:
    """Say whether decoding may have dropped or altered something; never misses, may be wrong.

    A duplicate key that is dropped takes at least two quotes along, and only an escaped quote can
    add any. A number can lose digits only if it has many, or a long exponent.
    """
    if body.count(b'"') != canonical.count(b'"') or b"\\u0022" in body:
        return True
    digits = body.translate(_DIGITS_AS_ZERO, _SIGNS)
    return _LONG_NUMBER in digits or _LONG_EXPONENT in digits


def _check_strictly(body: bytes) -> None:
    try:
        json.loads(body, object_pairs_hook=_unique, parse_int=_exact_int, parse_float=_finite_float)
    except RecursionError:
        raise _too_deep() from None


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _value in pairs:
        if name in seen:
            raise invalid_request(
                "A key occurs twice in one object of the body.",
                param=_CONTROLS.sub("", name)[:MAX_PARAM_CHARS] or "body",
                code="duplicate_key",
            )
        seen.add(name)


def _exact_int(text: str) -> None:
    if len(text) > _MAX_INTEGER_DIGITS or not -(2**63) <= int(text) < 2**64:
        raise _imprecise()


def _finite_float(text: str) -> None:
    value = float(text)
    is_zero = not text.lower().split("e")[0].strip("-0.")
    if value in {float("inf"), float("-inf")} or (value == 0) != is_zero:
        raise _imprecise()


def _imprecise() -> ApiError:
    return invalid_request(
        "A number in the body is too large or too small to be passed on exactly.",
        param="body",
        code="invalid_number",
    )


def _too_deep() -> ApiError:
    return invalid_request(
        f"The body is nested more than {MAX_DEPTH} levels deep.",
        param="body",
        code="nested_too_deeply",
    )


def _model(payload: dict[str, Any]) -> str:
    model = payload.get("model")
    if model is None:
        _missing("model")
    if not isinstance(model, str):
        _wrong_type("model", "a string")
    if not model.strip() or len(model) > MAX_MODEL_CHARS or _CONTROLS.search(model):
        raise invalid_request(
            f"'model' must have 1 to {MAX_MODEL_CHARS} characters and no control characters.",
            param="model",
        )
    return model


def _check_messages(payload: dict[str, Any]) -> None:
    messages = payload.get("messages")
    if messages is None:
        _missing("messages")
    if not isinstance(messages, list):
        _wrong_type("messages", "a list")
    if not messages:
        raise invalid_request("'messages' must not be empty.", param="messages")
    for index, message in enumerate(messages):
        if type(message) is not dict:
            _wrong_type(f"messages[{index}]", "an object")


def _max_output_tokens(payload: dict[str, Any]) -> int | None:
    """Return the larger of the two spellings: nobody knows which of them a vendor obeys."""
    bounds = [
        _integer(payload, name, MAX_OUTPUT_TOKENS)
        for name in ("max_tokens", "max_completion_tokens")
    ]
    return max((bound for bound in bounds if bound is not None), default=None)


def _flag(value: Any, param: str) -> bool:
    if value is not None and not isinstance(value, bool):
        _wrong_type(param, "true or false")
    return bool(value)


def _integer(payload: dict[str, Any], param: str, limit: int) -> int | None:
    value = payload.get(param)
    if value is None:
        return None
    if type(value) is not int:
        _wrong_type(param, "an integer")
    if not 1 <= value <= limit:
        raise invalid_request(f"'{param}' must be from 1 to {limit}.", param=param)
    return value


def _drop_routing(payload: dict[str, Any]) -> tuple[str, ...]:
    dropped = sorted(ROUTING_FIELDS.intersection(payload))
    for name in dropped:
        del payload[name]
    return tuple(dropped)


def _missing(param: str) -> NoReturn:
    raise invalid_request(f"'{param}' is missing.", param=param, code="missing_required_parameter")


def _wrong_type(param: str, expected: str) -> NoReturn:
    raise invalid_request(f"'{param}' must be {expected}.", param=param, code="invalid_type")
