"""Figures, moments and states as the pages print them.

A built-in of every template, so no `{% load %}`. Money comes in nanos (10⁻⁹ of a currency unit).
Gaps between groups of digits are margins: what a reader copies is a number without spaces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from django import template
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from billing.money import DECIMALS, NANOS_PER_CENT, TOKENS_PER_PRICE, text_from_nanos

register = template.Library()

LIGHTER_FROM_NANOS = NANOS_PER_CENT  # below a cent the last six digits are the amount
PRICE_DECIMALS = 6
MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"  # does not apply; zero is printed as zero
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

# --- money --------------------------------------------------------------------------------------


def _grouped(number: str, *, large: bool = False) -> SafeString:
    """`number` as a machine writes it, one dot inside; out: units and groups of three decimals."""
    units, _, decimals = number.lstrip("-").partition(".")
    groups = [decimals[at : at + 3] for at in range(0, len(decimals), 3)]
    return format_html(
        '<data class="money{}" value="{}">{}{}.{}{}</data>',
        " large" if large else "",
        number,
        MINUS if number.startswith("-") else "",
        f"{int(units):,}",
        groups[0],
        format_html_join("", "<span>{}</span>", ((group,) for group in groups[1:])),
    )


@register.filter
def money(nanos: int | None) -> SafeString | str:
    """Nine decimals, for everything that adds up on its page."""
    if nanos is None:
        return DASH
    return _grouped(text_from_nanos(nanos), large=abs(nanos) >= LIGHTER_FROM_NANOS)


@register.filter
def money2(nanos: int | None) -> SafeString | str:
    """Two decimals, rounded half away from zero, for summaries that nothing sums on that page."""
    if nanos is None:
        return DASH
    units, cents = divmod((abs(nanos) + NANOS_PER_CENT // 2) // NANOS_PER_CENT, 100)
    sign = MINUS if nanos < 0 and (units or cents) else ""
    shown = f"{sign}{units:,}.{cents:02d}"
    return format_html('<data value="{0}" title="{0}">{1}</data>', text_from_nanos(nanos), shown)


@register.filter
def held(nanos: int) -> SafeString:
    """Money on hold: lighter, and said so, since it is not charged yet."""
    return format_html('<span class="held">held {}</span>', _grouped(text_from_nanos(nanos)))


def _trimmed(number: str, decimals: int) -> str:
    """`number` without the zeros at its end, but with at least so many decimals."""
    units, _, tail = number.partition(".")
    return f"{units}.{tail.rstrip('0').ljust(decimals, '0')}"


@register.filter
def price(nanos_per_million: int | None) -> SafeString | str:
    """A price per million: six decimals, or as many more as it has."""
    if nanos_per_million is None:
        return DASH
    return _grouped(_trimmed(text_from_nanos(nanos_per_million), PRICE_DECIMALS))


@register.filter
def exact(quantity: int, nanos_per_million: int) -> SafeString:
    """What a line comes to before it is rounded: nine decimals, or as many more as it has."""
    nanos, rest = divmod(quantity * nanos_per_million, TOKENS_PER_PRICE)
    below = f"{rest:0{len(str(TOKENS_PER_PRICE)) - 1}d}"
    return _grouped(_trimmed(text_from_nanos(nanos) + below, DECIMALS))


# --- counts and moments -------------------------------------------------------------------------

MS_PER_SECOND = 1_000


@register.filter
def count(number: int | None) -> str:
    return DASH if number is None else f"{number:,}".replace("-", MINUS)


@register.filter
def ms(milliseconds: float | None) -> str:
    """Milliseconds for a column that names the unit: `4,158.4`."""
    return DASH if milliseconds is None else f"{milliseconds:,.1f}"


@register.filter
def took(milliseconds: float | None) -> str:
    """A duration with its unit: `703 ms`, from a second on `4.86 s`."""
    if milliseconds is None:
        return DASH
    if milliseconds < MS_PER_SECOND:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / MS_PER_SECOND:,.2f} s"


def _to_ms(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03d}"


MOMENTS: dict[str, Callable[[datetime], str]] = {
    "full": lambda moment: f"{moment:%Y-%m-%d} {_to_ms(moment)}",
    "second": lambda moment: f"{moment:%Y-%m-%d %H:%M:%S}",
    "minute": lambda moment: f"{moment:%Y-%m-%d %H:%M}",
    "ms": _to_ms,
    "time": lambda moment: f"{moment:%H:%M:%S}",
    "clock": lambda moment: f"{moment:%H:%M}",
    "day": lambda moment: f"{moment.day} {moment:%b %Y}",
    "date": lambda moment: f"{moment.day} {moment:%B %Y}",
    "weekday": lambda moment: f"{moment:%A} {moment.day} {moment:%B %Y}",
    "crumb": lambda moment: f"{moment.day} {moment:%B}, {moment:%H:%M:%S}",
}


@register.filter
def utc(moment: datetime | None, form: str = "second") -> SafeString | str:
    """A moment in UTC in one of the `MOMENTS`; its title gains the reader's own time by script."""
    if moment is None:
        return DASH
    if moment.tzinfo is None:
        raise ValueError("a moment without a zone cannot be printed as UTC")
    moment = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        f"{moment:%Y-%m-%d}T{_to_ms(moment)}Z",
        MOMENTS["full"](moment),
        MOMENTS[form](moment),
    )


# --- words --------------------------------------------------------------------------------------


@register.filter
def middle(name: str, length: int = 20) -> SafeString | str:
    """A long name cut in the middle, since both its ends tell it apart; the whole as title."""
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    tail = length - 1 - head
    return format_html('<span title="{}">{}{}{}</span>', name, name[:head], ELLIPSIS, name[-tail:])


@register.filter
def initials(name: str) -> str:
    words = name.split()
    return "".join(word[0] for word in words[:2]).upper() if len(words) > 1 else name[:2].upper()


HIDDEN = SafeString('aria-hidden="true"')


@register.simple_tag
def icon(name: str, label: str = "") -> SafeString:
    """A 16 px line icon of `static/icons.svg`; without a label it is hidden from screen readers."""
    said = format_html('role="img" aria-label="{}"', label) if label else HIDDEN
    return format_html(
        '<svg class="icon icon-{}" {}><use href="{}#{}"/></svg>',
        name,
        said,
        static("icons.svg"),
        name,
    )


@register.simple_tag
def leg(number: int) -> SafeString:
    """The ringed number of one of the four legs."""
    return format_html('<span class="ring">{}</span>', number)


@register.filter
def estimated(number: int | None) -> SafeString | str:
    """A count of tokens that we made, marked as such."""
    if number is None:
        return DASH
    return format_html(
        '<span class="approx">{}</span>{}', icon("waves", "estimated"), count(number)
    )


@dataclass(frozen=True, slots=True)
class Look:
    icon: str
    word: str
    tone: str  # ok | wait | info | warn | bad | off


STATES = {
    "settled": Look("check", "Settled", "ok"),
    "at_estimate": Look("waves", "At estimate", "info"),
    "estimating": Look("waves", "Estimating", "info"),
    "open": Look("half", "Open", "wait"),
    "streaming": Look("half", "Streaming", "wait"),
    "refused": Look("barred", "Refused", "warn"),
    "failed": Look("cross", "Failed", "bad"),
    "client_left": Look("left", "Client left", "off"),
    "active": Look("check", "Active", "ok"),
    "rotating": Look("clock", "Rotating", "wait"),
    "at_cap": Look("triangle", "At its cap", "warn"),
    "paused": Look("pause", "Paused", "off"),
    "revoked": Look("barred", "Revoked", "off"),
    "expired": Look("clock", "Expired", "off"),
    "suspended": Look("barred", "Suspended", "warn"),
    "draft": Look("half", "Draft", "wait"),
    "review": Look("clock", "In review", "wait"),
    "issued": Look("check", "Issued", "ok"),
    "paid": Look("check", "Paid", "ok"),
    "void": Look("barred", "Void", "off"),
    "flagged": Look("triangle", "Flagged", "warn"),
    "unread": Look("message", "Unread", "wait"),
    "qualified": Look("check", "Qualified", "ok"),
    "waived": Look("shield", "Waived", "off"),
    "let_in": Look("triangle", "Let in by a person", "warn"),
    "unqualified": Look("barred", "Not qualified", "warn"),
    "disabled": Look("pause", "Disabled", "warn"),
    "gone": Look("left", "Not in the catalog", "off"),
    "passed": Look("check", "Passed", "ok"),
    "undecided": Look("half", "Undecided", "wait"),
    "unchecked": Look("clock", "Not checked", "off"),
    "queued": Look("clock", "Queued", "wait"),
    "running": Look("half", "Running", "wait"),
}


@register.simple_tag
def status(state: str, text: str = "", *, pill: bool = False) -> SafeString:
    """Icon and word. `text` replaces the word (`Failed 503`); a pill stands once a page."""
    look = STATES.get(state) or Look("clock", state.replace("_", " ").capitalize(), "wait")
    return format_html(
        '<span class="status {}{}">{}{}</span>',
        look.tone,
        " pill" if pill else "",
        icon(look.icon),
        text or look.word,
    )


NOTE_ICONS = {"ok": "check", "info": "waves", "warn": "triangle", "bad": "cross"}


@register.simple_block_tag
def note(content: str, tone: str, cause: str, **aside: str) -> str:
    """Cause in bold, then who pays and what to do; aside: `request_id`, or `url` with `act`."""
    return render_to_string(
        "components/note.html",
        {"tone": tone, "icon_name": NOTE_ICONS[tone], "cause": cause, "body": content, **aside},
    )


@register.simple_block_tag
def nothing(content: str, title: str, url: str = "", act: str = "") -> str:
    """An empty state: what is absent, one fact that helps, the one next step."""
    return render_to_string(
        "components/empty.html", {"title": title, "body": content, "url": url, "act": act}
    )
