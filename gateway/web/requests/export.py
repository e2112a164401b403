"""The list as CSV, written while it is read: neither side ever holds all of it."""

import csv
import io
from collections.abc import AsyncIterator, Iterator, Sequence

from asgiref.sync import sync_to_async

from billing.money import text_from_nanos
from gateway.api.shapes import moment
from gateway.exchanges.selectors import PAGE_ROWS_MAX, ExchangeFilters, list_exchanges
from gateway.web.requests.rows import RequestLine

ROWS_MAX = 100_000
CUT = f"Cut after {ROWS_MAX:,} rows: narrow the filter for the rest."
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
HEAD = (
    "created_at",
    "request_id",
    "completion_id",
    "client_request_id",
    "model",
    "key_id",
    "key_name",
    "status",
    "status_code",
    "error_code",
    "mode",
    "first_token_ms",
    "duration_ms",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "usage_source",
    "finish_reason",
    "held",
    "charge",
    "currency",
)


def csv_pages(
    tenant_id: int, filters: ExchangeFilters, *, rows_max: int = ROWS_MAX
) -> Iterator[str]:
    """Yield the head and then a page of rows at a time, newest first."""
    yield _text([HEAD])
    older, written = None, 0
    while True:
        page = list_exchanges(tenant_id, filters, older_than=older, limit=PAGE_ROWS_MAX)
        yield _text([_row(RequestLine(row)) for row in page.rows])
        older, written = page.older, written + len(page.rows)
        if older is None:
            return
        if written >= rows_max:
            yield _text([[CUT]])
            return


async def awaited(pages: Iterator[str]) -> AsyncIterator[str]:
    """Read each page in the request's own thread, where its connection to PostgreSQL is."""
    while (page := await sync_to_async(_next)(pages)) is not None:
        yield page


def harmless(text: str) -> str:
    """Keep a spreadsheet from taking a name for a formula (OWASP, CSV injection)."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _next(pages: Iterator[str]) -> str | None:
    return next(pages, None)


def _row(line: RequestLine) -> list[str]:
    exchange, usage = line.row.exchange, line.usage
    charge = line.row.charge
    return [
        moment(line.at),
        line.public_id,
        line.row.completion_id,
        harmless(exchange.client_request_id or ""),
        harmless(line.model),
        "" if line.key is None else line.key.public_id,
        "" if line.key is None else harmless(line.key.name),
        line.row.status,
        _number(exchange.status_code),
        harmless(exchange.error_code or ""),
        line.mode,
        _number(exchange.first_byte_ms),
        _number(exchange.duration_ms),
        _number(None if usage is None else usage.prompt_tokens),
        _number(None if usage is None else usage.cached_input_tokens),
        _number(None if usage is None else usage.completion_tokens),
        "" if charge is None else charge.usage_source,
        harmless(exchange.finish_reason or ""),
        text_from_nanos(exchange.hold_nanos) if charge is None else "",
        "" if charge is None else text_from_nanos(charge.charge_nanos),
        exchange.currency,
    ]


def _number(number: int | None) -> str:
    return "" if number is None else str(number)


def _text(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()
