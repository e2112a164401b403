"""The four legs as tabs: which leg, which attempt, in which view, all said by the address."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from gateway.exchanges.diff import Diff, request_diff, response_diff
from gateway.exchanges.legs import RAW_CHARS, AttemptLegs, Leg, LegsView
from gateway.web.requests.chat import Chat, chat_of, summary_chat

CLIENT_REQUEST, VENDOR_REQUEST, VENDOR_RESPONSE, CLIENT_RESPONSE = 1, 2, 3, 4
NUMBERS = (CLIENT_REQUEST, VENDOR_REQUEST, VENDOR_RESPONSE, CLIENT_RESPONSE)
CHAT, JSON, RAW = "chat", "json", "raw"
VIEWS = {CHAT: "Chat", JSON: "JSON", RAW: "Raw"}
ANCHOR = "#legs"


@dataclass(frozen=True, slots=True)
class Tab:
    """A link to a leg, an attempt or a view; `fact` is when, or how many."""

    label: str
    url: str
    is_current: bool
    fact: str = ""


@dataclass(frozen=True, slots=True)
class LegTabs:
    """What the section of the four legs shows. `diff` is None where one side is not there."""

    number: int
    leg: Leg | None
    legs: tuple[Tab, ...]
    attempts: tuple[Tab, ...]
    views: tuple[Tab, ...]
    view: str
    diff: Diff | None
    chat: Chat | None
    json: str | None


def tabs_of(view: LegsView, query: Mapping[str, str]) -> LegTabs:
    number = _number(query.get("leg"), NUMBERS, CLIENT_REQUEST)
    attempt = _attempt(view, query)
    leg = _leg(view, number, attempt)
    shown = query.get("view", CHAT)
    shown = shown if shown in VIEWS else CHAT
    asked = {"leg": str(number), "view": shown}
    if attempt is not None:
        asked["attempt"] = str(attempt.number)
    chat = None if leg is None else chat_of(leg)
    if chat is None and leg is not None and leg.body is None:
        chat = summary_chat(view, number) if shown == CHAT else None
    return LegTabs(
        number=number,
        leg=leg,
        legs=_leg_tabs(view, asked, attempt),
        attempts=_attempt_tabs(view, asked, number),
        views=tuple(
            Tab(word, _url({**asked, "view": name}), name == shown) for name, word in VIEWS.items()
        ),
        view=shown,
        diff=_diff(view, number, attempt),
        chat=chat,
        json=_pretty(leg) if leg is not None and shown == JSON else None,
    )


def _attempt(view: LegsView, query: Mapping[str, str]) -> AttemptLegs | None:
    """The attempt asked for; the last one, which answered, for none or a wrong one."""
    if not view.attempts:
        return None
    wanted = query.get("attempt")
    found = (attempt for attempt in view.attempts if str(attempt.number) == wanted)
    return next(found, view.attempts[-1])


def _leg(view: LegsView, number: int, attempt: AttemptLegs | None) -> Leg | None:
    """None for a vendor's leg where nothing went to a vendor."""
    if number == CLIENT_REQUEST:
        return view.client_request
    if number == CLIENT_RESPONSE:
        return view.client_response
    if attempt is None:
        return None
    return attempt.request if number == VENDOR_REQUEST else attempt.response


def _diff(view: LegsView, number: int, attempt: AttemptLegs | None) -> Diff | None:
    if attempt is None or not view.client_request.headers:
        return None
    if number == VENDOR_REQUEST:
        return request_diff(view, attempt)
    is_answered = view.client_response.status is not None and attempt.response.status is not None
    return response_diff(view, attempt) if number == CLIENT_RESPONSE and is_answered else None


def _leg_tabs(
    view: LegsView, asked: Mapping[str, str], attempt: AttemptLegs | None
) -> tuple[Tab, ...]:
    labels = ("Client → Farthing", "Farthing → vendor", "Vendor → Farthing", "Farthing → client")
    return tuple(
        Tab(
            label,
            _url({**asked, "leg": str(number)}),
            str(number) == asked["leg"],
            _fact(view, number, _leg(view, number, attempt)),
        )
        for number, label in zip(NUMBERS, labels, strict=True)
    )


def _fact(view: LegsView, number: int, leg: Leg | None) -> str:
    if number == VENDOR_REQUEST and len(view.attempts) > 1:
        return f"{len(view.attempts)} attempts"
    return "" if leg is None or leg.at_ms is None else f"{leg.at_ms:,.1f} ms"


def _attempt_tabs(view: LegsView, asked: Mapping[str, str], number: int) -> tuple[Tab, ...]:
    if len(view.attempts) < 2 or number not in {VENDOR_REQUEST, VENDOR_RESPONSE}:  # noqa: PLR2004
        return ()
    return tuple(
        Tab(
            f"Attempt {attempt.number}: {attempt.response.status or 'failed'}",
            _url({**asked, "attempt": str(attempt.number)}),
            str(attempt.number) == asked["attempt"],
        )
        for attempt in view.attempts
    )


def _pretty(leg: Leg) -> str | None:
    if leg.body is None:
        return None
    text = json.dumps(leg.body, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= RAW_CHARS else f"{text[:RAW_CHARS]}…"


def _url(asked: Mapping[str, str]) -> str:
    return f"?{urlencode(asked)}{ANCHOR}"


def _number(text: str | None, known: tuple[int, ...], otherwise: int) -> int:
    return next((number for number in known if str(number) == text), otherwise)
