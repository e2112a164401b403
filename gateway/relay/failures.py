"""What a failed attempt means: for the client, for the next route, and for the money."""

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from billing.storable import storable
from gateway import errors
from gateway.errors import ApiError

MAX_STAFF_MESSAGE_CHARS = 2000
MAX_CLIENT_MESSAGE_CHARS = 300
MAX_RETRY_AFTER_S = 3600
SECRET_CHARS_MIN = 8  # a shorter credential is no secret, and would blot out words
MAX_DETAILS = 5
"""Of the places that a vendor finds wrong in a request; each is bounded with the whole message."""


class Fault(enum.Enum):
    """What broke between the vendor and us, apart from an answer that says so itself."""

    CONNECT_FAILED = "connection failed"
    CONNECT_TIMEOUT = "connect time-out"
    NO_CAPACITY = "no free connection"
    FIRST_BYTE_TIMEOUT = "first-byte time-out"
    IDLE_TIMEOUT = "idle time-out"
    TOTAL_TIMEOUT = "total time-out"
    CONNECTION_LOST = "connection lost"
    PROTOCOL_ERROR = "protocol error"
    TOO_LARGE = "answer or event too large"
    UNREADABLE = "answer not readable"


class Blame(enum.Enum):
    """Whose a failure is, as far as a breaker cares.

    A client that asks for the impossible must not take a vendor away from all the others, so
    UNKNOWN is what it could have caused: an answer without choices (some vendors answer so what
    their filter stopped), one that is too large, one that took longer than a call may.
    """

    NOBODY = "the vendor is well"
    UNKNOWN = "it says nothing of the route"
    OURS = "it says nothing of the vendor"
    ROUTE = "the vendor's model fails"
    VENDOR = "the vendor is not reached"


NOTHING_SENT = frozenset({Fault.CONNECT_FAILED, Fault.CONNECT_TIMEOUT, Fault.NO_CAPACITY})
TIMEOUTS = frozenset(
    {Fault.CONNECT_TIMEOUT, Fault.FIRST_BYTE_TIMEOUT, Fault.IDLE_TIMEOUT, Fault.TOTAL_TIMEOUT}
)
BLAME = {
    Fault.CONNECT_FAILED: Blame.VENDOR,
    Fault.CONNECT_TIMEOUT: Blame.VENDOR,
    Fault.NO_CAPACITY: Blame.OURS,
    Fault.FIRST_BYTE_TIMEOUT: Blame.ROUTE,
    Fault.IDLE_TIMEOUT: Blame.ROUTE,
    Fault.CONNECTION_LOST: Blame.ROUTE,
    Fault.PROTOCOL_ERROR: Blame.ROUTE,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt.

    `error` is for the client, `vendor_message` (bounded, not cleaned) for staff only.
    `may_try_next` says that another route may be tried: nothing was billed without our knowing.
    `blame` is what a breaker counts. `rejects_stream_options` says that the same
    vendor may be asked once more without them.
    """

    error: ApiError
    vendor_status: int | None = None
    vendor_message: str = ""
    retry_after_s: int | None = None
    may_try_next: bool = False
    may_have_billed: bool = False
    blame: Blame = Blame.UNKNOWN
    rejects_stream_options: bool = False
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class VendorError:
    """An error as a vendor words it; every part may be missing."""

    message: str = ""
    status: int | None = None
    code: str | None = None
    type: str | None = None
    param: str | None = None

    @property
    def names(self) -> set[str]:
        return {name.lower() for name in (self.code, self.type) if name}


STATUS_BY_NAME = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "insufficient_balance": 402,
    "insufficient_credits": 402,
    "billing_hard_limit_reached": 402,
    "billing_not_active": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "access_terminated": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "timeout": 408,
    "timeout_error": 408,
    "request_too_large": 413,
    "rate_limit": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "overloaded": 503,
    "overloaded_error": 503,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "bad_request": 400,
    "badrequesterror": 400,
    "invalid_request": 400,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "string_above_max_length": 400,
}
ERROR = "error"
MESSAGE_FIELDS = ("message", "msg", "detail", "error_msg", "error_message", "status_msg", "errors")
ERROR_FIELDS = ("detail", "errors", "error_code", "error_msg", "error_message", "errorMessage")
CLIENTS_FAULT = frozenset({400, 413, 415, 422})
ACCOUNT_REFUSED = frozenset({401, 402, 403})
TIMED_OUT = frozenset({408, 504, 524})
BUSY = frozenset({503, 529})

_ACCOUNT_WORDS = re.compile(
    r"api[ _-]?key\b.{0,60}\b(?:not valid|invalid|incorrect|expired|missing|required|revoked)"
    r"|(?:invalid|incorrect|expired|missing|wrong|revoked|no)\b.{0,20}\bapi[ _-]?key"
    r"|insufficient (?:balance|credit|fund|quota)|exceeded your current quota"
    r"|(?:credit balance|balance) (?:is )?too low|billing",
    re.IGNORECASE | re.DOTALL,
)
_STREAM_OPTIONS = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_ADDRESS = re.compile(
    r"\b(?:(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?|(?:[a-z0-9-]+\.)+[a-z]{2,}:\d{2,5})\b", re.IGNORECASE
)
_SECRET = re.compile(
    r"\b(?:bearer\s+\S+|(?:sk|pk|rk|vk|gsk|xai)[-_][\w*.-]{4,}|AIza[\w-]{8,}"
    r"|(?:org|proj)[-_](?=\w*[0-9])\w{10,}"
    r"|(?:key|token)[-_](?=[\w*.-]*[0-9*])[\w*.-]{8,})",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"<[^>]*>")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_THREE_DIGITS = re.compile(r"[0-9]{3}")
_ERROR_STATUSES = range(400, 600)
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PARAM = re.compile(r"[A-Za-z0-9_.\[\]-]{1,128}")


def failure_of_fault(fault: Fault, *, request_sent: bool) -> Failure:
    may_have_billed = request_sent and fault not in NOTHING_SENT
    if fault in TIMEOUTS:
        error = errors.upstream_timeout(may_have_billed=may_have_billed)
    elif may_have_billed:
        error = errors.upstream_failed_mid_response()
    else:
        error = errors.upstream_unavailable()
    return Failure(
        error,
        vendor_message=fault.value,
        may_try_next=not may_have_billed,
        may_have_billed=may_have_billed,
        blame=BLAME.get(fault, Blame.UNKNOWN),
        fault=fault,
    )


def failure_of_status(
    status: int | None,
    said: VendorError,
    *,
    retry_after_s: int | None,
    hidden: Mapping[str, str],
) -> Failure:
    """Map a vendor's error status, and what it said, by the table of UX.

    `status` is None where a vendor said that something failed and not what. `hidden` holds the
    words that a client must not see, with what to put in their place.
    """
    blame = _blame_of(status)
    status = status or HTTPStatus.BAD_GATEWAY
    error = _client_error(status, said, retry_after_s, hidden)
    is_clients_fault = error.type == errors.INVALID_REQUEST
    refuses_options = is_clients_fault and _STREAM_OPTIONS.search(said.message) is not None
    return Failure(
        error,
        vendor_status=status,
        vendor_message=storable(said.message[:MAX_STAFF_MESSAGE_CHARS]),
        retry_after_s=retry_after_s,
        may_try_next=not is_clients_fault,
        blame=blame,
        rejects_stream_options=refuses_options,
    )


def unreadable(status: int, message: str) -> Failure:
    """Return the failure of an answer under a good status that is no answer."""
    return Failure(
        errors.upstream_failed_mid_response(),
        vendor_status=status,
        vendor_message=storable(message[:MAX_STAFF_MESSAGE_CHARS]),
        may_have_billed=True,
        fault=Fault.UNREADABLE,
    )


def find_error(message: dict[str, Any], name: bytes = b"") -> VendorError | None:
    """Return the error that an answer or event carries, in any dialect, or None.

    `name` is the event's. One without choices may be an error by the fields of its dialect alone.
    """
    error = message.get("error")
    is_named = name == b"error" or ERROR in (message.get("object"), message.get("type"))
    if not error and is_named:
        error = message
    choices = message.get("choices")
    if not error and isinstance(choices, list):
        error = next(filter(None, map(_choice_error, choices)), None)
    elif not error:
        error = _undeclared_error(message)
    return read_error(error) if error else None


def _choice_error(choice: Any) -> Any:
    """Return the error inside of a choice, or one that only its finish reason tells of."""
    if not isinstance(choice, dict):
        return None
    return choice.get("error") or (choice if choice.get("finish_reason") == ERROR else None)


def _undeclared_error(message: dict[str, Any]) -> Any:
    """Return what FastAPI, Cloudflare, Baidu, MiniMax and their like write instead of an answer."""
    if message.get("status") == ERROR or message.get("success") is False:
        return message.get("errors") or message
    base = message.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return base
    is_refusal = _status(message) is not None and any(message.get(name) for name in MESSAGE_FIELDS)
    return message if is_refusal or any(message.get(name) for name in ERROR_FIELDS) else None


def read_error(error: Any) -> VendorError:
    """Read what may be an object, a text, a list of them, or anything else."""
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, str):
        return VendorError(message=error)
    if not isinstance(error, dict):
        return VendorError()
    inner = error.get("error")
    if isinstance(inner, (dict, str)) and inner and "message" not in error:
        return read_error(inner)
    names = {name: _text(error.get(name)) for name in ("code", "type", "param")}
    told = map(error.get, MESSAGE_FIELDS)
    return VendorError(
        message=next(filter(None, map(_words, told)), ""),
        status=_status(error),
        **names,
    )


def status_of(said: VendorError) -> int | None:
    """Return the HTTP status that an error sent under 200 stands for; None where it says none."""
    if said.status is not None:
        return said.status
    for name in said.names:
        if name in STATUS_BY_NAME:
            return STATUS_BY_NAME[name]
    return None


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Read Retry-After as seconds; a date counts from the answer's own Date."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]), MAX_RETRY_AFTER_S)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return min(max(int(wait.total_seconds()), 0), MAX_RETRY_AFTER_S)


def clean(text: str, hidden: Mapping[str, str]) -> str:
    """Return a vendor's words without URLs, addresses, secrets, markup and hidden words.

    Hidden words that are long enough to be secrets go first and wherever they stand; shorter ones
    are names, and part of other words.
    """
    text = _URL.sub("[address]", storable(_CONTROLS.sub(" ", _cut(text))))
    for word in hidden:
        text = without_secret(text, word, hidden[word])
    text = _URL.sub("[address]", _MARKUP.sub(" ", text))
    text = _SECRET.sub("[key]", _ADDRESS.sub("[address]", text))
    words = sorted((word for word in hidden if word), key=len, reverse=True)
    if words:
        by_lower = {word.lower(): hidden[word] for word in words}
        either = "|".join(map(re.escape, words))
        pattern = re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)
        text = pattern.sub(lambda match: by_lower.get(match[0].lower(), "[hidden]"), text)
    text = " ".join(text.split())
    if len(text) > MAX_CLIENT_MESSAGE_CHARS:
        text = text[: MAX_CLIENT_MESSAGE_CHARS - 1] + "…"
    return text


def without_secret(text: str, secret: str, shown: str) -> str:
    """Return the text with `shown` for the secret wherever it stands, in any case."""
    if len(secret) < SECRET_CHARS_MIN:
        return text
    return re.sub(re.escape(secret), lambda _: shown, text, flags=re.IGNORECASE)


def _cut(text: str) -> str:
    """Bounded, and without the word that the bound goes through: it may be half a secret."""
    if len(text) <= MAX_STAFF_MESSAGE_CHARS:
        return text
    whole_words, _, _ = text[:MAX_STAFF_MESSAGE_CHARS].rpartition(" ")
    return whole_words


def decode_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


def _client_error(
    status: int, said: VendorError, retry_after_s: int | None, hidden: Mapping[str, str]
) -> ApiError:
    if _is_about_our_account(status, said):
        return errors.upstream_credential_rejected()
    wait_s = errors.SHORT_RETRY_S if retry_after_s is None else retry_after_s
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return errors.upstream_rate_limited(wait_s)
    if status in CLIENTS_FAULT:
        return _refusal(status, said, hidden)
    if status in TIMED_OUT:
        return errors.upstream_timeout(may_have_billed=False)
    if status in BUSY:
        return errors.upstream_unavailable(HTTPStatus.SERVICE_UNAVAILABLE, wait_s)
    return errors.upstream_unavailable(HTTPStatus.BAD_GATEWAY, wait_s)


def _blame_of(status: int | None) -> Blame:
    """A 4xx shows a vendor that works, whoever is at fault."""
    if status is None:
        return Blame.UNKNOWN
    return Blame.ROUTE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Blame.NOBODY


def _is_about_our_account(status: int, said: VendorError) -> bool:
    if status in ACCOUNT_REFUSED:
        return True
    if any(STATUS_BY_NAME.get(name) in ACCOUNT_REFUSED for name in said.names):
        return True
    can_hide_it = status in {HTTPStatus.BAD_REQUEST, HTTPStatus.TOO_MANY_REQUESTS}
    return can_hide_it and _ACCOUNT_WORDS.search(said.message) is not None


def _refusal(status: int, said: VendorError, hidden: Mapping[str, str]) -> ApiError:
    message = clean(said.message, hidden) or "no reason was given."
    if not message.endswith((".", "!", "?", "…")):
        message += "."
    code = said.code if said.code and _CODE.fullmatch(said.code) else None
    code = None if code is None or code.isdigit() else code
    param = said.param if said.param and _PARAM.fullmatch(said.param) else None
    return errors.refused_by_upstream(
        status,
        message,
        code=code if code and clean(code, hidden) == code else "invalid_value",
        param=param if param and clean(param, hidden) == param else None,
    )


def _status(error: dict[str, Any]) -> int | None:
    for name in ("code", "status", "status_code", "http_status"):
        value = error.get(name)
        if isinstance(value, str) and _THREE_DIGITS.fullmatch(value):
            value = int(value)
        if isinstance(value, int) and value in _ERROR_STATUSES:
            return value
    return None


def _words(value: Any) -> str:
    """Return a text, or what FastAPI writes: a list of places with what is wrong there."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    return "; ".join(filter(None, map(_detail, value[:MAX_DETAILS])))


def _detail(entry: Any) -> str:
    if not isinstance(entry, dict):
        return entry if isinstance(entry, str) else ""
    told = entry.get("msg") or entry.get("message") or ""
    return f"{entry.get('loc', '')} {told}".strip()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
