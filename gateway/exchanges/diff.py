"""What Farthing changed on the way: between ① and ②, and between ③ and ④, as rows to draw."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.exchanges.legs import AttemptLegs, Leg, LegsView
from gateway.relay.json_text import encode

CONTEXT_CHARS = 76
SHORT_CHARS = 60
FRAMING = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "date"})
"""Each hop has its own; that they differ is no change."""

VENDORS_NAME = "the vendor's own name for the model"
USAGE_ASKED = "so that the vendor reports usage"
USAGE_DROPPED = f"{USAGE_ASKED}; dropped from ④, you did not ask for it"
OPTIONS_REFUSED = "this vendor refuses the option"
OPTIONS_MEANINGLESS = "says nothing without a stream"
NOT_PASSED_ON = "steers other gateways, never passed on"
OWN_ID = "the exchange's own id"
NAME_ASKED_FOR = "the name that you asked for"
USAGE_WITHHELD = "Farthing asked for it, you did not"
USAGE_WITH_COST = "with what it costs"
AS_OPENAI_WRITES = "as OpenAI writes it"
VENDORS_CREDENTIAL = "the vendor's credential, never shown"

HEADER_REASONS = {"authorization": VENDORS_CREDENTIAL}

MISSING: Any = object()
Reason = Callable[[str, Any, Any], str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `sign` is "-", "+" or "". The changed word stands between its surroundings."""

    sign: str
    before: str
    word: str = ""
    after: str = ""
    reason: str | None = None

    @property
    def text(self) -> str:
        return self.before + self.word + self.after


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """`start` and `end` are the numbers of two legs. Without a body in both, only headers."""

    start: int
    end: int
    groups: tuple[Group, ...]


def request_diff(view: LegsView, attempt: AttemptLegs) -> Diff:
    """Return what was changed between the client's request and one vendor's."""
    asked, sent = view.client_request, attempt.request
    groups = []
    if isinstance(asked.body, dict) and isinstance(sent.body, dict):
        groups.append(_body_group(asked.body, sent.body, _request_reasons(view)))
    groups.append(_header_group(asked, sent))
    return Diff(1, 2, tuple(groups))


def response_diff(view: LegsView, attempt: AttemptLegs) -> Diff:
    """Return what was changed between the last vendor's answer and the client's."""
    said, answered = attempt.response, view.client_response
    groups = []
    if isinstance(said.body, dict) and isinstance(answered.body, dict):
        if "choices" in said.body and "choices" in answered.body:
            groups.append(_body_group(said.body, answered.body, _response_reason))
        else:
            groups.append(Group("Body, replaced by an error in OpenAI's shape", ()))
        if answered.is_stream and not said.is_stream:
            groups.append(Group("Form, one JSON body made into a well-formed stream", ()))
        elif said.is_stream and not answered.is_stream:
            groups.append(Group("Form, a stream put together into one JSON body", ()))
    groups.append(_header_group(said, answered))
    return Diff(3, 4, tuple(groups))


# --- bodies -----------------------------------------------------------------------------------


def _request_reasons(view: LegsView) -> Reason:
    def reason(name: str, _before: Any, after: Any) -> str | None:
        if name == "model":
            return VENDORS_NAME
        if name in view.dropped:
            return NOT_PASSED_ON
        if name == "stream_options":
            if _asks_usage(after):
                return USAGE_ASKED if view.wants_usage else USAGE_DROPPED
            body = view.client_request.body
            streams = isinstance(body, dict) and body.get("stream")
            return OPTIONS_REFUSED if streams else OPTIONS_MEANINGLESS
        return None

    return reason


def _response_reason(name: str, _before: Any, after: Any) -> str | None:
    if name == "usage":
        return USAGE_WITHHELD if after is MISSING else USAGE_WITH_COST
    known = {"id": OWN_ID, "model": NAME_ASKED_FOR}
    return known.get(name, AS_OPENAI_WRITES)


def _asks_usage(options: Any) -> bool:
    return isinstance(options, dict) and options.get("include_usage") is True


def _body_group(before: dict[str, Any], after: dict[str, Any], reason: Reason) -> Group:
    names = _in_order(before, after)
    changed = [n for n in names if before.get(n, MISSING) != after.get(n, MISSING)]
    count = f"{len(changed)} {'change' if len(changed) == 1 else 'changes'}"
    title = f"Body, {count}; all else passed untouched" if changed else "Body, passed untouched"
    if not changed:
        return Group(title, ())
    rows = [Row("", "{")]
    context: list[str] = []
    for name in names:
        old, new = before.get(name, MISSING), after.get(name, MISSING)
        if old == new:
            context.append(f"{_quoted(name)}: {_short(new, name)}")
            continue
        rows.extend(_context_rows(context))
        context = []
        rows.extend(_member_rows(name, old, new, reason(name, old, new)))
    rows.extend(_context_rows(context))
    return Group(title, (*rows, Row("", "}")))


def _in_order(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [*before, *(name for name in after if name not in before)]


def _member_rows(name: str, old: Any, new: Any, reason: str | None) -> Iterator[Row]:
    if old is MISSING or new is MISSING:
        sign, value = ("+", new) if old is MISSING else ("-", old)
        yield Row(sign, '  "', name, f'": {_short(value, name)}', reason)
        return
    for sign, value in (("-", old), ("+", new)):
        why = reason if sign == "+" else None
        if isinstance(value, str):
            word = _quoted(value)[1:-1]
            yield Row(sign, f'  {_quoted(name)}: "', word, '",', why)
        else:
            yield Row(sign, f"  {_quoted(name)}: ", _short(value, name), ",", why)


def _context_rows(members: list[str]) -> Iterator[Row]:
    line = ""
    for member in members:
        if line and len(line) + len(member) > CONTEXT_CHARS:
            yield Row("", f"  {line}")
            line = ""
        line += f"{' ' if line else ''}{member},"
    if line:
        yield Row("", f"  {line}")


def _short(value: Any, name: str) -> str:
    """Write a value on one line: a long one as what it is and how much of it there is."""
    text = encode(value).decode()
    if len(text) <= SHORT_CHARS:
        return text.replace('":', '": ').replace(",", ", ") if isinstance(value, dict) else text
    if isinstance(value, list):
        return f"[ {len(value)} {name if name in {'messages', 'tools', 'choices'} else 'entries'} ]"
    if isinstance(value, dict):
        return f"{{ {len(value)} members }}"
    return f"{text[: SHORT_CHARS - 1]}…"


def _quoted(text: str) -> str:
    return encode(text).decode()


# --- headers ----------------------------------------------------------------------------------


def _header_group(before: Leg, after: Leg) -> Group:
    old, new = _by_name(before.headers), _by_name(after.headers)
    changed = [n for n in old if n in new and old[n] != new[n]]
    added = [n for n in new if n not in old]
    removed = [_shown(n, before.headers) for n in old if n not in new]
    rows = []
    for name in changed:
        shown = _shown(name, after.headers)
        rows.append(Row("-", f"{shown}: ", old[name]))
        rows.append(Row("+", f"{shown}: ", new[name], "", HEADER_REASONS.get(name)))
    rows.extend(Row("+", f"{_shown(n, after.headers)}: ", new[n]) for n in added)
    return Group(_header_title(len(changed), len(added), removed), tuple(rows))


def _header_title(changed: int, added: int, removed: Sequence[str]) -> str:
    parts = [f"{count} {word}" for count, word in ((changed, "changed"), (added, "added")) if count]
    if removed:
        parts.append(f"{len(removed)} removed ({', '.join(removed)})")
    return f"Headers, {', '.join(parts)}" if parts else "Headers, none changed"


def _by_name(headers: Iterable[Sequence[str]]) -> dict[str, str]:
    named: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower() not in FRAMING:
            named.setdefault(name.lower(), []).append(value)
    return {name: ", ".join(values) for name, values in named.items()}


def _shown(name: str, headers: Iterable[Sequence[str]]) -> str:
    return next(shown for shown, _ in headers if shown.lower() == name)
