"""An invoice's lines beside what its exchanges and the ledger say of them: all of it, asked now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from django.db import connection

from billing.invoices.amounts import lines_of
from billing.invoices.claiming import SUMS, parts_of
from billing.models import Adjustment, Invoice, InvoiceLine, LineKind, PlanFee
from billing.rates import rates_of

_PARTS: Final = f"""
SELECT m.part, '' AS model, p.price_id, p.terms_id, p.above, count(*) AS exchanges,
       sum(c.charge_nanos)::bigint AS charge_nanos,
       sum(c.shortfall_nanos)::bigint AS shortfall_nanos, {SUMS}
FROM billing_invoiceexchange m
JOIN billing_charge c ON c.exchange_id = m.exchange_id AND c.tenant_id = m.tenant_id
JOIN (SELECT DISTINCT part, coalesce(price_id, 0) AS price_id, coalesce(terms_id, 0) AS terms_id,
             coalesce(above_prompt_tokens, -1) AS above
      FROM billing_invoiceline WHERE invoice_id = %(invoice)s AND part IS NOT NULL) p USING (part)
WHERE m.invoice_id = %(invoice)s AND m.tenant_id = %(tenant)s
GROUP BY m.part, p.price_id, p.terms_id, p.above
ORDER BY m.part
"""  # noqa: S608  # names of our own columns

# What was posted for the exchanges of each part, and which credit paid of it.
_POSTED: Final = """
SELECT m.part, k.id, sum(t.amount_nanos)::bigint
FROM billing_invoiceexchange m
JOIN billing_transfer t ON t.link = m.exchange_id AND t.tenant_id = m.tenant_id AND t.phase = 2
LEFT JOIN billing_credit k ON k.account_id = t.debit_account_id
WHERE m.invoice_id = %(invoice)s AND m.tenant_id = %(tenant)s
GROUP BY m.part, k.id
"""

# What an act moved out of the wallet, or into it below zero.
_MOVED: Final = """
SELECT t.link, sum(CASE WHEN d.tenant_id IS NULL THEN -t.amount_nanos ELSE t.amount_nanos END)
FROM billing_transfer t JOIN billing_account d ON d.id = t.debit_account_id
WHERE t.link = ANY (%s) AND t.tenant_id = %s AND t.phase = 0
GROUP BY t.link
"""


@dataclass(frozen=True, slots=True)
class CheckedLine:
    """`exchanges_nanos` is None where no exchange stands behind the line."""

    line: InvoiceLine
    exchanges_nanos: int | None


@dataclass(frozen=True, slots=True)
class CheckedGroup:
    """Lines that one sum of the ledger stands for: those of a part, or one line alone."""

    lines: tuple[CheckedLine, ...]
    ledger_nanos: int

    @property
    def invoice_nanos(self) -> int:
        return sum(checked.line.amount_nanos for checked in self.lines)

    @property
    def difference_nanos(self) -> int:
        """Of the invoice, or of the exchanges of a line, from the ledger; the larger one."""
        differences = [self.invoice_nanos - self.ledger_nanos]
        differences += [
            checked.line.amount_nanos - checked.exchanges_nanos
            for checked in self.lines
            if checked.exchanges_nanos is not None
        ]
        return max(differences, key=abs)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    groups: tuple[CheckedGroup, ...]

    @property
    def exchanges_nanos(self) -> int:
        return sum(checked.exchanges_nanos or 0 for group in self.groups for checked in group.lines)

    @property
    def ledger_nanos(self) -> int:
        return sum(group.ledger_nanos for group in self.groups)

    @property
    def difference_nanos(self) -> int:
        """Zero only if every group's is zero: differences do not make up for each other."""
        return max((group.difference_nanos for group in self.groups), key=abs, default=0)


def reconcile(invoice: Invoice) -> Reconciliation:
    lines = list(
        InvoiceLine.objects.filter(invoice=invoice)
        .select_related("price", "terms__plan")
        .order_by("position")
    )
    amounts = _amounts_of_exchanges(invoice, lines)
    ledger = _Ledger.of(invoice, lines)
    groups = groupby(lines, key=lambda line: (line.part, 0 if line.part else line.position))
    return Reconciliation(tuple(_group(list(group), amounts, ledger) for _, group in groups))


@dataclass(frozen=True, slots=True)
class _Ledger:
    """What transfers say, by part, by credit, and by the link of a fee or a correction."""

    parts: dict[int, int]
    by_credit: dict[int, int]
    moved: dict[Any, int]
    links: dict[tuple[str, int], Any]

    @classmethod
    def of(cls, invoice: Invoice, lines: Sequence[InvoiceLine]) -> "_Ledger":
        links = dict(_links(lines))
        parts: dict[int, int] = {}
        by_credit: dict[int, int] = {}
        with connection.cursor() as cursor:
            cursor.execute(_POSTED, {"invoice": invoice.pk, "tenant": invoice.tenant_id})
            for part, credit_id, nanos in cursor.fetchall():
                parts[part] = parts.get(part, 0) + nanos
                if credit_id is not None:
                    by_credit[credit_id] = by_credit.get(credit_id, 0) + nanos
            cursor.execute(_MOVED, [list(links.values()), invoice.tenant_id])
            moved = {link: int(nanos) for link, nanos in cursor.fetchall()}
        return cls(parts, by_credit, moved, links)

    def nanos(self, line: InvoiceLine) -> int:
        if line.part is not None:
            return self.parts.get(line.part, 0)
        if line.credit_id is not None:
            return -self.by_credit.get(line.credit_id, 0)
        if line.kind == LineKind.REMAINDER:
            return line.invoice.carried_in_nanos
        key = ("fee", line.fee_id) if line.fee_id else ("adjustment", line.adjustment_id or 0)
        return self.moved.get(self.links.get(key), 0)


def _links(lines: Sequence[InvoiceLine]) -> Iterator[tuple[tuple[str, int], Any]]:
    fees = PlanFee.objects.filter(pk__in=[line.fee_id for line in lines if line.fee_id])
    corrections = [line.adjustment_id for line in lines if line.adjustment_id]
    for fee in fees:
        yield ("fee", fee.pk), fee.link
    for adjustment in Adjustment.objects.filter(pk__in=corrections):
        yield ("adjustment", adjustment.pk), adjustment.link


def _amounts_of_exchanges(
    invoice: Invoice, lines: Sequence[InvoiceLine]
) -> dict[tuple[int, str, str], int]:
    """What each line would be if it were drafted now, by part, kind and dimension."""
    pairs = {(line.price_id, line.terms_id) for line in lines if line.price_id is not None}
    with connection.cursor() as cursor:
        cursor.execute(_PARTS, {"invoice": invoice.pk, "tenant": invoice.tenant_id})
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {
        (part.number, line.kind, line.dimension): line.amount_nanos
        for part in parts_of(rows, rates_of(list(pairs)))
        for line in lines_of(part)
    }


def _group(
    lines: list[InvoiceLine], amounts: dict[tuple[int, str, str], int], ledger: _Ledger
) -> CheckedGroup:
    checked = [
        CheckedLine(
            line,
            None if line.part is None else amounts.get((line.part, line.kind, line.dimension), 0),
        )
        for line in lines
    ]
    return CheckedGroup(tuple(checked), ledger.nanos(lines[0]))
