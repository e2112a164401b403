"""The note at the head of a request's page: what happened, who pays, what to do."""

from dataclasses import dataclass
from typing import Any

from billing.messages import ESTIMATED
from gateway.exchanges.selectors import (
    CLIENT_LEFT,
    ESTIMATING,
    FAILED,
    OPEN,
    REFUSED,
    ExchangeView,
)

TONES = {REFUSED: "warn", FAILED: "bad", CLIENT_LEFT: "warn"}
NO_USAGE = (
    "The answer ended without a usage block, although Farthing asked for one, so our workers "
    "counted the tokens of the prompt and of the text that reached you. The charge below is that "
    "count. Nothing to do on your side."
)
UNUSABLE_USAGE = (
    "The vendor said that an answer with text in it took no tokens, so our workers counted the "
    "tokens of the prompt and of the text that reached you. The charge below is that count. "
    "Nothing to do on your side."
)
BROKE_OFF = (
    "The answer broke off before its end and brought no usage, so our workers counted the tokens "
    "of the prompt and of the text that reached you. The charge below is that count. Send the "
    "request again if you need the rest; a repeat is charged again."
)
INTERRUPTED = (
    "What had reached you until then was counted by our workers, and is all that you pay. The "
    "answer may be incomplete: send the request again if you need the rest."
)


@dataclass(frozen=True, slots=True)
class PageNote:
    """`cause` is bold. `facts` are the four fields of the status message, where there is one."""

    tone: str
    cause: str
    words: str
    facts: tuple[str, ...] = ()
    is_estimate: bool = False


def note_of(view: ExchangeView) -> PageNote | None:
    message = view.exchange.message
    if isinstance(message, dict) and message.get("user_message"):
        return _told(view, message)
    return _silent(view)


def _told(view: ExchangeView, message: dict[str, Any]) -> PageNote:
    """The message word for word: a status message as the cause, an error split after its cause."""
    text = str(message["user_message"])
    facts = tuple(
        f"{name} {'none' if message.get(name) is None else message[name]}"
        for name in ("user_status", "vendor_status", "vendor_message")
    )
    if view.charge is not None and view.charge.is_estimated:
        words = _how_estimated(view, text)
        return PageNote("info", text, words, facts, is_estimate=True)
    cause, dot, rest = text.partition(". ")
    return PageNote(TONES.get(view.status, "warn"), cause + dot.strip(), rest, facts)


def _how_estimated(view: ExchangeView, text: str) -> str:
    if text != ESTIMATED:
        return INTERRUPTED
    if view.status == FAILED:
        return BROKE_OFF
    is_silent = view.charge is None or view.charge.vendor_usage is None
    return NO_USAGE if is_silent else UNUSABLE_USAGE


def _silent(view: ExchangeView) -> PageNote | None:
    """What a state says where nothing was told."""
    if view.status == OPEN:
        return PageNote(
            "ok",
            "This request is still running",
            "What is held for it is not charged yet. Reload the page to see its end.",
        )
    if view.status == ESTIMATING:
        return PageNote(
            "info",
            "The vendor returned no token usage; our workers count it now",
            "The hold stays until the count is done, which takes seconds. Reload the page then.",
        )
    if view.status == CLIENT_LEFT:
        return PageNote("warn", "The client left before the answer had ended", _who_pays(view))
    if view.status == FAILED:
        return PageNote("bad", "The answer broke off before its end", _who_pays(view))
    return None


def _who_pays(view: ExchangeView) -> str:
    if view.charge is None or view.charge.charge_nanos == 0:
        return "Nothing was charged; what was held is free again."
    return "You pay for the prompt and for what the vendor produced until then, and nothing else."
