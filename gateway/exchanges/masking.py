"""Take secrets out of what is stored. The live request and answer are never touched.

Headers go by an allow list: a name that is not on it keeps its name and loses its value, so that
tomorrow's credential header is masked today. Bodies go by the shapes that keys are known to have.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from billing.storable import storable

DOTS = "••••"
KEYLESS = "::keyless::"
"""The credential of a vendor that wants none: it says something, and is no secret."""
MAX_HEADERS = 100
SHORTEST_SECRET_CHARS = 12
"""No rule finds anything in less."""
MAX_HEADER_CHARS = 2_000
"""Of one value as stored; nothing that explains an exchange is longer."""

HeaderItems = Iterable[tuple[str | bytes, str | bytes]]
HeaderList = list[list[str]]

KEPT_HEADERS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "age",
        "allow",
        "cache-control",
        "connection",
        "content-encoding",
        "content-language",
        "content-length",
        "content-type",
        "date",
        "expect",
        "host",
        "idempotency-replayed",
        "keep-alive",
        "openai-model",
        "openai-processing-ms",
        "openai-version",
        "origin",
        "pragma",
        "retry-after",
        "retry-after-ms",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "vary",
        "via",
        "x-accel-buffering",
        "x-client-request-id",
        "x-content-type-options",
        "x-farthing-cost",
        "x-farthing-hold",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-real-ip",
        "x-request-id",
        "x-should-retry",
    }
)
KEPT_PREFIXES = ("x-ratelimit-", "x-stainless-")
KEY_HEADERS = frozenset({"authorization", "x-api-key"})
"""Where a key of ours may stand: its public part is kept, so that its owner finds it again."""
SCHEMES = frozenset({"basic", "bearer", "digest", "negotiate"})

_OWN_KEY = re.compile(
    r"(sk_(?:live|test|sys)_[0-9A-Za-z]{10}_)[0-9A-Za-z]{29}([0-9A-Za-z]{4})(?![0-9A-Za-z])"
)
_OWN_KEY_MASKED = re.compile(rf"sk_(?:live|test|sys)_[0-9A-Za-z]{{10}}_{DOTS}[0-9A-Za-z]{{4}}")
_ODD_NAMES = {"etag": "ETag", "te": "TE", "www-authenticate": "WWW-Authenticate", "dnt": "DNT"}


def mask_headers(headers: HeaderItems, *, keeps_own_keys: bool = True) -> HeaderList:
    """Return `[name, value]` pairs fit to be stored; masking them again changes nothing.

    `keeps_own_keys` False is for what a vendor is sent: its credential is never shown, not even
    the public part of one that looks like a key of ours.
    """
    return [
        _mask_header(_name(name), value, keeps_own_keys=keeps_own_keys)
        for name, value in islice(headers, MAX_HEADERS)
    ]


def mask_text(text: str) -> str:
    """Return the text without secrets, storable."""
    return storable(mask_body(text.encode("utf-8", "replace")).decode("utf-8", "replace"))


def mask_body(body: bytes) -> bytes:
    """Return the body without secrets: valid JSON stays valid, and masking again changes nothing.

    What is split over the events of a stream is not seen here: see gateway.exchanges.streams.
    """
    if b"\\u00" in body:
        body = _PLAIN_ESCAPE.sub(_unescape, body)
    for rule in _rules_for(body):
        body = rule.pattern.sub(rule.replace, body)
    return body


def secret_spans(body: bytes) -> list[tuple[int, int]]:
    """Return where secrets stand, as ascending offsets that do not overlap."""
    spans: list[tuple[int, int]] = []
    found = sorted(
        match.span()
        for rule in _rules_for(body)
        for match in rule.pattern.finditer(body)
        if rule.replace(match) != match[0]
    )
    for start, end in found:
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _text(value: str | bytes) -> str:
    text = (value.decode("latin-1") if isinstance(value, bytes) else value)[:MAX_HEADER_CHARS]
    return text if text.isascii() and text.isprintable() else storable(text)


class _Name(NamedTuple):
    shown: str
    is_kept: bool
    is_key: bool


@lru_cache(maxsize=1_024)  # traffic says the same few things
def _name(name: str | bytes) -> _Name:
    lowered = _text(name).lower()
    return _Name(
        shown=_ODD_NAMES.get(lowered) or lowered.title(),
        is_kept=lowered in KEPT_HEADERS or lowered.startswith(KEPT_PREFIXES),
        is_key=lowered in KEY_HEADERS,
    )


def _mask_header(name: _Name, value: str | bytes, *, keeps_own_keys: bool) -> list[str]:
    if name.is_kept:
        return [name.shown, _kept_value(value)]
    if name.is_key:
        return [name.shown, _mask_credential(_text(value), keeps_own_keys=keeps_own_keys)]
    return [name.shown, DOTS if value else ""]


@lru_cache(maxsize=4_096)  # credentials never come here
def _kept_value(value: str | bytes) -> str:
    text = _text(value)
    return text if len(text) < SHORTEST_SECRET_CHARS else mask_text(text)


def _mask_credential(value: str, *, keeps_own_keys: bool) -> str:
    scheme, space, credential = value.strip().partition(" ")
    if not space:
        scheme, credential = "", scheme
    if scheme.lower() not in SCHEMES:
        scheme = ""
    shown = _shown_credential(credential.strip(), keeps_own_keys=keeps_own_keys)
    return f"{scheme} {shown}" if scheme else shown


def _shown_credential(credential: str, *, keeps_own_keys: bool) -> str:
    if not credential or credential == KEYLESS:
        return credential
    if not keeps_own_keys:
        return DOTS
    if _OWN_KEY_MASKED.fullmatch(credential):
        return credential
    own = _OWN_KEY.fullmatch(credential)
    return f"{own[1]}{DOTS}{own[2]}" if own else DOTS


# --- bodies -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Rule:
    """One shape of secret.

    `needles` are lower-case literals of which one is in every match: looking for them first is
    what makes a megabyte without secrets cheap. Patterns start with a literal for the same reason
    and are possessive or bounded, so that no input makes them slow.
    """

    needles: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    replace: Callable[[re.Match[bytes]], bytes]


_DOTS = DOTS.encode()
_WORD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_ESCAPE_END = re.compile(rb"\\(?:[nrtbf]|u[0-9a-fA-F]{4})\Z")
_ESCAPE_BYTES = 6
_PLAIN_ESCAPE = re.compile(
    rb"\\\\|\\u00(2[bdeBDEfF]|3[0-9adAD]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aA])"
)


def _unescape(match: re.Match[bytes]) -> bytes:
    """Write an escape that means a plain letter as that letter, so that no key hides in one."""
    return match[0] if match[1] is None else bytes([int(match[1], 16)])


def _stands_alone(match: re.Match[bytes]) -> bool:
    """False for `task-…`: what stands before must not belong to the word, an escape may."""
    start = match.start()
    before = match.string[max(0, start - _ESCAPE_BYTES) : start]
    return not before or before[-1] not in _WORD or _ESCAPE_END.search(before) is not None


def _prefixed(match: re.Match[bytes]) -> bytes:
    return match[1] + _DOTS if _stands_alone(match) else match[0]


def _web_token(match: re.Match[bytes]) -> bytes:
    """Mask a JSON web token. The pattern eats whole words, so that base64 is walked once."""
    return match[0] if match[2] is None else _prefixed(match)


def _own_key(match: re.Match[bytes]) -> bytes:
    return match[1] + _DOTS + match[2]


def _after_head(match: re.Match[bytes]) -> bytes:
    return match[1] + _DOTS


def _between(match: re.Match[bytes]) -> bytes:
    return match[1] + _DOTS + match[2]


def _token(prefix: str, characters: str, least: int, *needles: str) -> _Rule:
    pattern = re.compile(f"({prefix})[{characters}]{{{least},4096}}+".encode())
    return _Rule(tuple(n.encode() for n in needles or (prefix.lower(),)), pattern, _prefixed)


_FIELD_NAMES = (
    "api[_-]?key|x[_-]api[_-]key|x[_-]goog[_-]api[_-]key|x[_-]auth[_-]token|auth[_-]?token"
    "|access[_-]?token|refresh[_-]?token|id[_-]?token|session[_-]?token|azure_ad_token"
    "|aws_session_token|aws_access_key_id|secret|secret[_-]?key|client[_-]?secret"
    "|(?:aws_)?secret[_-]?access[_-]?key|private[_-]?key|password|passwd"
    "|(?:proxy-)?authorization|(?:set-)?cookie|vertex_credentials"
)
# How those names end, so that "prompt_tokens" and its like set nothing off.
_FIELD_NEEDLES = (
    *(
        end.encode()
        for word in ("key", "token", "secret", "key_id", "credentials")
        for end in (word + '"', word + '\\"')
    ),
    b"passw",
    b"authorization",
    b"cookie",
)
_URL_SAFE = "A-Za-z0-9_-"

_RULES = (
    _Rule(
        (b"sk_live_", b"sk_test_", b"sk_sys_"),
        re.compile(_OWN_KEY.pattern.encode()),
        _own_key,
    ),
    _token(
        f"sk_(?:live|test|sys)_(?![0-9A-Za-z]{{10}}_{DOTS})",
        "A-Za-z0-9_",
        8,
        "sk_live_",
        "sk_test_",
        "sk_sys_",
    ),
    _token("sk-", _URL_SAFE, 12),
    _token("rk_live_", "A-Za-z0-9", 16),
    _token("gsk_", "A-Za-z0-9", 20),
    _token("xai-", _URL_SAFE, 20),
    _token("pplx-", _URL_SAFE, 20),
    _token("hf_", "A-Za-z0-9", 20),
    _token("nvapi-", _URL_SAFE, 20),
    _token("AKIA", "A-Z0-9", 16),
    _token("ASIA", "A-Z0-9", 16),
    _token("AIza", _URL_SAFE, 30),
    _token(r"ya29\.", _URL_SAFE, 20, "ya29."),
    _token("GOCSPX-", _URL_SAFE, 16),
    _token("gh[opsur]_", "A-Za-z0-9", 30, "gho_", "ghp_", "ghs_", "ghu_", "ghr_"),
    _token("github_pat_", "A-Za-z0-9_", 22),
    _token("glpat-", _URL_SAFE, 16),
    _token("xox[abeprs]-", "A-Za-z0-9-", 10, "xox"),
    _token("npm_", "A-Za-z0-9", 30),
    _Rule(
        (b"eyj",), re.compile(rb"(eyJ)[\w-]*+(\.eyJ[\w-]++(?:\.[\w-]*+)?)?", re.ASCII), _web_token
    ),
    _Rule(
        (b"bearer ",),
        re.compile(
            rb"(bearer {1,8})(?=[^\d\s\"\\]{0,200}+\d)[\w.~+/=-]{12,8192}+",
            re.IGNORECASE | re.ASCII,
        ),
        _after_head,
    ),
    _Rule(
        (b"private key-----",),
        re.compile(
            rb"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)"
            rb"(?:(?!-----END)(?:[^\"\\]|\\[^\"])){0,16384}+((?:-----END [A-Z ]{0,30}KEY-----)?)"
        ),
        _between,
    ),
    _Rule(
        (b"://",),
        re.compile(rb"(://[^/\s:@\"\\]{0,64}:)[^/\s@\"\\]{1,200}(@)"),
        _between,
    ),
    _Rule(
        (b"access_key", b"access-key", b"accesskey"),
        re.compile(rb"(secret_?-?access_?-?key[\s\"'\\:=]{1,12})[A-Za-z0-9/+]{40}", re.IGNORECASE),
        _after_head,
    ),
    _Rule(
        _FIELD_NEEDLES,
        re.compile(
            rf'("(?:{_FIELD_NAMES})"\s*:\s*")(?:[^"\\]|\\.){{1,16384}}+'.encode(), re.IGNORECASE
        ),
        _after_head,
    ),
    _Rule(  # the same inside a text that is JSON itself, such as a tool call's arguments
        _FIELD_NEEDLES,
        re.compile(
            rf'(\\"(?:{_FIELD_NAMES})\\"\s*:\s*\\")[^"\\]{{1,16384}}+'.encode(),
            re.IGNORECASE,
        ),
        _after_head,
    ),
)

_NEEDLES = tuple(dict.fromkeys(needle for rule in _RULES for needle in rule.needles))


def _rules_for(body: bytes) -> Iterable[_Rule]:
    """The rules that could find something: most bodies have no needle, and then there are none."""
    lowered = body.lower()
    found = {needle for needle in _NEEDLES if needle in lowered}
    return [rule for rule in _RULES if not found.isdisjoint(rule.needles)] if found else ()
