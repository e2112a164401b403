"""A line of an invoice as pages show it, and a page of the exchanges behind it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404

from billing.ids import exchange_id_of, request_id
from billing.invoices.selectors import exchanges_behind, paid_by_credit
from billing.models import Invoice, InvoiceLine, LineKind
from billing.money import TOKENS_PER_PRICE
from billing.paging import page_of
from billing.rating import PROMPT_CLASSES
from gateway.exchanges.selectors import PAGE_ROWS, ExchangeRow, rows_of
from gateway.web.pager import Pager, pager_of
from gateway.web.requests.rows import RequestLine

SHARE_WORDS = {
    LineKind.USAGE: "Of it in this line",
    LineKind.REQUESTS: "Of it in this line",
    LineKind.SHORTFALL: "Not charged",
    LineKind.CREDIT: "Paid by this credit",
}


@dataclass(frozen=True, slots=True)
class LineView:
    """`exchanges_nanos` is what its exchanges come to, None where none stands behind it.

    `note` tells parts of one model apart; it stands at the first line of a part.
    """

    line: InvoiceLine
    note: str = ""
    exchanges_nanos: int | None = None

    @property
    def model(self) -> str:
        """The name that the words begin with; empty where they begin with none."""
        model = self.line.model
        return model if model and self.line.words.startswith(f"{model} ") else ""

    @property
    def words(self) -> str:
        """What comes after the model."""
        return self.line.words.removeprefix(self.model).strip()

    @property
    def is_money_alone(self) -> bool:
        """No usage: a fee, a credit, a correction, a remainder."""
        return self.line.part is None

    @property
    def quantity_unit(self) -> str:
        """Stands where tokens have their price per million."""
        if self.line.kind == LineKind.FEE:
            return "month"
        if self.line.kind == LineKind.ROUNDING:
            return "charge" if self.line.quantity == 1 else "charges"
        if self.line.part is not None and self.line.unit_nanos is None:
            return "request" if self.line.quantity == 1 else "requests"
        return ""

    @property
    def unit_words(self) -> str:
        return " a request" if self.line.kind == LineKind.REQUESTS else ""


def views_of(lines: Sequence[InvoiceLine]) -> list[LineView]:
    notes = dict(_notes(lines))
    return [LineView(line, notes.get(line.position, "")) for line in lines]


def _notes(lines: Sequence[InvoiceLine]) -> Iterator[tuple[int, str]]:
    """By position, for models that are in several parts."""
    parts: dict[str, set[int]] = {}
    firsts: dict[int, InvoiceLine] = {}
    for line in lines:
        if line.part is not None and line.price is not None:
            parts.setdefault(line.model, set()).add(line.part)
            firsts.setdefault(line.part, line)
    for line in firsts.values():
        if len(parts[line.model]) > 1:
            yield line.position, _version(line)


def _version(line: InvoiceLine) -> str:
    assert line.price is not None  # noqa: S101  # for the type checker
    since = line.price.effective_from
    said = [f"price of {since.day} {since:%B %Y}"]
    if line.terms is not None:
        said.append(f"plan {line.terms.plan.name}")
    if line.above_prompt_tokens:
        said.append(f"prompts above {line.above_prompt_tokens:,} tokens")
    return ", ".join(said)


# --- the exchanges behind a line ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BehindRow:
    """An exchange; `quantity` and `share_micro_nanos` are what of it is in the line, if told."""

    request: RequestLine
    quantity: int | None
    share_micro_nanos: int | None
    is_estimated: bool


@dataclass(frozen=True, slots=True)
class Behind:
    view: LineView
    rows: tuple[BehindRow, ...]
    pager: Pager
    share_words: str

    @property
    def has_quantity(self) -> bool:
        return self.view.line.kind == LineKind.USAGE

    @property
    def amount_nanos(self) -> int:
        """The line's, as its exchanges have it: what they lack or a credit pays is above zero."""
        return abs(self.view.line.amount_nanos)

    @property
    def listed(self) -> str:
        return f"Newest first, {len(self.rows)} of {self.view.line.exchange_count:,}."


def line_of(invoice: Invoice, position: int) -> InvoiceLine:
    """Raises Http404 for a line that there is not, or that no exchange stands behind."""
    found = (
        InvoiceLine.objects.filter(invoice=invoice, position=position, exchange_count__gt=0)
        .select_related("credit", "price", "terms__plan")
        .first()
    )
    if found is None:
        raise Http404
    found.invoice = invoice
    return found


def line_context(invoice: Invoice, position: int, older: str, base: str) -> dict[str, Any]:
    """What the page of a line at `base` shows. Raises Http404 as `line_of` does."""
    line = line_of(invoice, position)

    def url(cursor: str) -> str:
        return f"{base}?{urlencode({'older': cursor})}" if cursor else base

    return {"invoice": invoice, "behind": behind(line, older, url)}


def behind(line: InvoiceLine, older: str, url: Callable[[str], str]) -> Behind:
    """A page of them; `older` is the request whose page was before, `url` takes such a one."""
    found = exchanges_behind(line)
    older_than = exchange_id_of(older)
    page = page_of(found, "exchange_id", older_than=older_than, limit=PAGE_ROWS)
    ids = [listed.exchange_id for listed in page.rows]
    paid = paid_by_credit(line, ids)
    pager = pager_of(
        found,
        "exchange_id",
        page,
        older_than=older_than,
        limit=PAGE_ROWS,
        url=lambda cursor: url("" if cursor is None else request_id(cursor)),
    )
    rows = rows_of(line.invoice.tenant_id, ids)
    return Behind(
        LineView(line, _version(line) if line.price else ""),
        tuple(_row(line, row, paid) for row in rows),
        pager,
        SHARE_WORDS.get(LineKind(line.kind), ""),
    )


def _row(line: InvoiceLine, row: ExchangeRow, paid: dict[UUID, int]) -> BehindRow:
    charge: Any = row.charge
    quantity: int | None = None
    share: int | None = None
    if line.kind == LineKind.USAGE:
        quantity = getattr(charge.usage, f"{line.dimension}_tokens")
        share = quantity * (line.unit_nanos or 0)
    elif line.kind == LineKind.REQUESTS:
        share = (line.unit_nanos or 0) * TOKENS_PER_PRICE
    elif line.kind == LineKind.SHORTFALL:
        share = charge.shortfall_nanos * TOKENS_PER_PRICE
    elif line.kind == LineKind.CREDIT:
        share = paid[row.exchange.id] * TOKENS_PER_PRICE
    request = RequestLine(row)
    is_prompt = line.dimension in PROMPT_CLASSES
    is_estimated = request.is_prompt_estimated if is_prompt else request.is_completion_estimated
    return BehindRow(request, quantity, share, is_estimated)
