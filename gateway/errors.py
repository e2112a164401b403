"""Every error a client of the relay can see: status, type, code and retry advice in one table.

A message says what happened, who pays and what to do next. It never carries a key, a vendor's
name, a vendor's text that was not cleaned, or a URL. The official SDKs retry 408, 409, 429 and
everything from 500 on unless `x-should-retry` says otherwise, and a silent retry of something
that was billed bills twice: hence `false` on every failure that may have cost money.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import orjson

SHORT_RETRY_S = 2
"""Advice where nothing better is known: long enough for a hold or a hiccup to pass."""
SERVICE_RETRY_S = 5

INVALID_REQUEST = "invalid_request_error"
PERMISSION = "permission_error"
QUOTA = "insufficient_quota"
RATE_LIMIT = "rate_limit_error"
IDEMPOTENCY = "idempotency_error"
UPSTREAM = "upstream_error"
SERVER = "server_error"

NOT_CHARGED = "You were not charged."


class ApiError(Exception):
    """An answer of ours in OpenAI's error shape.

    `should_retry` is the value of `x-should-retry`; `retry_after_s` whole seconds, or None for
    no `Retry-After` header. `why` is the limit that was in the way, kept with the request.
    """

    def __init__(
        self,
        status: int,
        type_: str,
        code: str,
        message: str,
        *,
        param: str | None = None,
        should_retry: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = int(status)
        self.type = type_
        self.code = code
        self.message = message
        self.param = param
        self.should_retry = should_retry
        self.retry_after_s = retry_after_s
        self.why: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, dict[str, str | None]]:
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def body(self) -> bytes:
        return orjson.dumps(self.as_dict())

    def event(self) -> bytes:
        """Return the error as the last event of a stream that has already begun."""
        return b"data: " + self.body() + b"\n\n"

    def headers(self) -> list[tuple[str, str]]:
        headers = [
            ("content-type", "application/json"),
            ("cache-control", "no-store"),
            ("x-should-retry", "true" if self.should_retry else "false"),
        ]
        if self.retry_after_s is not None:
            headers.append(("retry-after", str(self.retry_after_s)))
        return headers

    def __repr__(self) -> str:
        return f"ApiError({self.status}, {self.code!r}, {self.message!r})"


def invalid_api_key() -> ApiError:
    return ApiError(
        HTTPStatus.UNAUTHORIZED,
        INVALID_REQUEST,
        "invalid_api_key",
        "The API key is missing, unknown, expired or revoked. You were not charged. "
        "Send a valid key as 'Authorization: Bearer ...'.",
    )


def model_not_allowed(whose: str = "This key") -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        PERMISSION,
        "model_not_allowed",
        f"{whose} may not use the requested model. You were not charged. "
        "Choose a model from GET /v1/models, or ask an admin of your organisation to allow it.",
        param="model",
    )


def model_not_in_plan() -> ApiError:
    return model_not_allowed("Your organisation, by its plan,")


def ip_not_allowed() -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        PERMISSION,
        "ip_not_allowed",
        "This key may not be used from your network address. You were not charged. "
        "Ask an admin of your organisation to add the address to the key.",
    )


def scope_not_allowed() -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        PERMISSION,
        "scope_not_allowed",
        "This key may not use this endpoint. You were not charged. Use a key that was made for it.",
    )


def tenant_suspended() -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        PERMISSION,
        "tenant_suspended",
        "Your organisation is suspended. You were not charged. Ask its owner to contact support.",
    )


def model_not_found() -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND,
        INVALID_REQUEST,
        "model_not_found",
        "The requested model does not exist here. You were not charged. "
        "GET /v1/models lists what this key may use.",
        param="model",
    )


def model_not_priced() -> ApiError:
    return ApiError(
        HTTPStatus.FORBIDDEN,
        PERMISSION,
        "model_not_priced",
        "The requested model has no price in your currency, so it is not served; free would be an "
        "explicit zero. You were not charged. Choose another model from GET /v1/models.",
        param="model",
    )


def not_found() -> ApiError:
    return ApiError(
        HTTPStatus.NOT_FOUND,
        INVALID_REQUEST,
        "not_found",
        "There is nothing at this address. You were not charged. Check the path and the method.",
    )


def invalid_request(message: str, *, param: str | None, code: str = "invalid_value") -> ApiError:
    """Return a 400; `message` is the cause as one sentence, `param` the field at fault."""
    return ApiError(
        HTTPStatus.BAD_REQUEST,
        INVALID_REQUEST,
        code,
        f"{message} {NOT_CHARGED} Correct the request and send it again.",
        param=param,
    )


def too_large(limit_bytes: int) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        INVALID_REQUEST,
        "request_too_large",
        f"The request body is larger than {limit_bytes} bytes. You were not charged. "
        "Send less, for example fewer or smaller images.",
        param="body",
    )


def insufficient_balance(figures: str = "") -> ApiError:
    """Return a 402; `figures` is a sentence that says what there is and what was needed."""
    return ApiError(
        HTTPStatus.PAYMENT_REQUIRED,
        QUOTA,
        "insufficient_balance",
        _told(
            "Your organisation's balance is used up.",
            figures,
            "You were not charged. Top up under Billing, then try again.",
        ),
    )


def key_limit_reached(which: str = "A spend limit is reached.") -> ApiError:
    """Return a 402; `which` says which limit, its size, what is spent and held, and its reset."""
    return ApiError(
        HTTPStatus.PAYMENT_REQUIRED,
        QUOTA,
        "key_limit_reached",
        f"{which} {NOT_CHARGED} Raise the limit, or wait for its reset.",
    )


def estimate_exceeds_balance(figures: str = "") -> ApiError:
    return ApiError(
        HTTPStatus.PAYMENT_REQUIRED,
        QUOTA,
        "estimate_exceeds_balance",
        _told(
            "This request could cost more than what is available.",
            figures,
            "You were not charged. Lower max_tokens, shorten the prompt, or top up under Billing.",
        ),
    )


def in_flight_budget_exhausted(figures: str = "", retry_after_s: int = SHORT_RETRY_S) -> ApiError:
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        RATE_LIMIT,
        "in_flight_budget_exhausted",
        _told(
            "Requests that are still running reserve the rest of the balance or limit.",
            figures,
            "You were not charged. Try again when some of them have ended.",
        ),
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def rate_limit_exceeded(limit: str, retry_after_s: int) -> ApiError:
    """Return a 429; `limit` says what was exceeded: "60 requests per minute of this key"."""
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        RATE_LIMIT,
        "rate_limit_exceeded",
        f"The limit of {limit} is reached. You were not charged. "
        f"Try again in {retry_after_s} seconds.",
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def idempotency_in_progress(retry_after_s: int = SHORT_RETRY_S) -> ApiError:
    return ApiError(
        HTTPStatus.CONFLICT,
        IDEMPOTENCY,
        "in_progress",
        "A request with this Idempotency-Key is still running; this one was not started and "
        "is not charged. Try again shortly to receive its answer.",
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def idempotency_key_reused() -> ApiError:
    return ApiError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        IDEMPOTENCY,
        "key_reused",
        "This Idempotency-Key was used with a different request. You were not charged. "
        "Send a new key for a new request.",
    )


def refused_by_upstream(
    status: int, message: str, *, code: str = "invalid_value", param: str | None = None
) -> ApiError:
    """Return a vendor's 4xx that the client's input caused; `message` must be cleaned already."""
    return ApiError(
        status,
        INVALID_REQUEST,
        code,
        f"The model refused the request: {message} You were not charged.",
        param=param,
    )


def upstream_credential_rejected() -> ApiError:
    return ApiError(
        HTTPStatus.BAD_GATEWAY,
        UPSTREAM,
        "upstream_credential_rejected",
        "The model's provider refused our account, which is our fault and not your key's. "
        "You were not charged. Use another model, or try again later.",
    )


def upstream_unavailable(
    status: int = HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s: int = SHORT_RETRY_S
) -> ApiError:
    return ApiError(
        status,
        UPSTREAM,
        "upstream_unavailable",
        "The model's provider is not available at the moment. You were not charged. "
        "Try again shortly.",
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def upstream_rate_limited(retry_after_s: int = SHORT_RETRY_S) -> ApiError:
    return ApiError(
        HTTPStatus.TOO_MANY_REQUESTS,
        RATE_LIMIT,
        "upstream_rate_limited",
        "The model is in high demand and its provider asks to slow down. You were not charged. "
        f"Try again in {retry_after_s} seconds.",
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def upstream_timeout(*, may_have_billed: bool) -> ApiError:
    advice = (
        "Work that was done may be charged, so it is not repeated by itself. "
        if may_have_billed
        else f"{NOT_CHARGED} "
    )
    return ApiError(
        HTTPStatus.GATEWAY_TIMEOUT,
        UPSTREAM,
        "upstream_timeout",
        f"The model did not answer in time. {advice}Try again, or ask for a shorter answer.",
        should_retry=not may_have_billed,
        retry_after_s=None if may_have_billed else SHORT_RETRY_S,
    )


def upstream_failed_mid_response() -> ApiError:
    return ApiError(
        HTTPStatus.BAD_GATEWAY,
        UPSTREAM,
        "upstream_failed_mid_response",
        "The model's answer broke off or could not be read. At most the prompt and what was "
        "produced are charged. See the request's page for the charge before you try again.",
    )


def internal_error(*, money_may_have_moved: bool) -> ApiError:
    advice = (
        "See the request's page for the charge before you try again."
        if money_may_have_moved
        else "You were not charged. Try again."
    )
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        SERVER,
        "internal_error",
        f"Something failed on our side. {advice}",
        should_retry=not money_may_have_moved,
    )


def service_unavailable(retry_after_s: int = SERVICE_RETRY_S) -> ApiError:
    """Return the answer while PostgreSQL is away: never a 401, and nothing is forwarded."""
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        SERVER,
        "service_unavailable",
        "We cannot serve requests at the moment. Your key is not at fault and you were not "
        "charged. Try again shortly.",
        should_retry=True,
        retry_after_s=retry_after_s,
    )


def _told(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


TABLE: dict[str, Callable[[], ApiError]] = {
    "invalid_api_key": invalid_api_key,
    "model_not_allowed": model_not_allowed,
    "ip_not_allowed": ip_not_allowed,
    "scope_not_allowed": scope_not_allowed,
    "tenant_suspended": tenant_suspended,
    "model_not_found": model_not_found,
    "model_not_priced": model_not_priced,
    "not_found": not_found,
    "invalid_value": lambda: invalid_request("A field has a wrong value.", param="messages"),
    "request_too_large": lambda: too_large(50 * 1024 * 1024),
    "insufficient_balance": insufficient_balance,
    "key_limit_reached": key_limit_reached,
    "estimate_exceeds_balance": estimate_exceeds_balance,
    "in_flight_budget_exhausted": in_flight_budget_exhausted,
    "rate_limit_exceeded": lambda: rate_limit_exceeded("requests per minute", SHORT_RETRY_S),
    "in_progress": idempotency_in_progress,
    "key_reused": idempotency_key_reused,
    "upstream_credential_rejected": upstream_credential_rejected,
    "upstream_unavailable": upstream_unavailable,
    "upstream_rate_limited": upstream_rate_limited,
    "upstream_timeout": lambda: upstream_timeout(may_have_billed=True),
    "upstream_failed_mid_response": upstream_failed_mid_response,
    "internal_error": lambda: internal_error(money_may_have_moved=True),
    "service_unavailable": service_unavailable,
}
"""One example of every code, for the errors table of the docs and the tenant's page."""
