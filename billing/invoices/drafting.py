"""Drafting one invoice, in one transaction: all of it is there, or nothing.

What goes on it: every settled exchange from before the month's end that is on no invoice yet, every
fee that was charged and every correction that was posted and is on none. So what comes late is
on the next one, and what a void invoice released comes back.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, QuerySet, Sum

from billing.invoices.amounts import DraftLine, Part, lines_of, rounded
from billing.invoices.claiming import Reach, claim_exchanges, reach_of
from billing.invoices.months import Month
from billing.locks import lock_invoicing
from billing.models import (
    Adjustment,
    AdjustmentState,
    Credit,
    Invoice,
    InvoiceLine,
    InvoiceState,
    LineKind,
    PlanFee,
)
from billing.money import text_from_nanos
from billing.plans import assigned_at
from keys.models import AuditAction, Tenant
from keys.services import record

_CREDITS: Final = """
SELECT k.id, sum(t.amount_nanos)::bigint, count(*)
FROM billing_invoiceexchange m
JOIN billing_transfer t ON t.link = m.exchange_id AND t.tenant_id = m.tenant_id AND t.phase = 2
JOIN billing_credit k ON k.account_id = t.debit_account_id
WHERE m.invoice_id = %s
GROUP BY k.id ORDER BY k.id
"""


def draft_invoice(tenant: Tenant, currency: str, month: Month, *, actor: str) -> Invoice | None:
    """Draft the tenant's invoice of a month; None where there is one, or nothing to put on it.

    Raises UnratedCharges.
    """
    with transaction.atomic():
        lock_invoicing(tenant.pk, currency)
        mine = Invoice.objects.filter(tenant=tenant, currency=currency)
        if mine.filter(month=month.first).exclude(state=InvoiceState.VOID).exists():
            return None
        reach = reach_of(tenant.pk, currency, month)
        invoice = _open(tenant, currency, month, reach)
        parts = claim_exchanges(invoice, reach)
        lines = [line for part in parts for line in lines_of(part)]
        lines += [*_fee_lines(invoice), *_credit_lines(invoice), *_correction_lines(invoice)]
        if not lines:
            transaction.set_rollback(True)
            return None
        _finish(invoice, parts, lines)
        _leave_trail(invoice, actor)
    return invoice


def _open(tenant: Tenant, currency: str, month: Month, reach: Reach) -> Invoice:
    assigned = assigned_at(tenant.pk, month.ends_at - timedelta(microseconds=1))
    return Invoice.objects.create(
        tenant=tenant,
        tenant_name=tenant.name,
        plan_name="" if assigned is None or assigned.plan is None else assigned.plan.name,
        currency=currency,
        month=month.first,
        time_zone=month.time_zone,
        starts_at=month.starts_at,
        ends_at=month.ends_at,
        open_from=reach.open_from,
        carried_in_nanos=carried_nanos(tenant.pk, currency),
    )


def carried_nanos(tenant_id: int, currency: str) -> int:
    """What the invoices so far have left over: lines that no total has asked for yet.

    By sums rather than from invoice to invoice, so that a void one takes its own part out.
    """
    standing = Invoice.objects.filter(tenant_id=tenant_id, currency=currency).exclude(
        state=InvoiceState.VOID
    )
    left = standing.aggregate(nanos=Sum(F("net_nanos") - F("total_nanos")))["nanos"]
    return int(left or 0)


def _standing_lines() -> QuerySet[InvoiceLine]:
    return InvoiceLine.objects.exclude(invoice__state=InvoiceState.VOID)


def _fee_lines(invoice: Invoice) -> list[DraftLine]:
    listed = _standing_lines().filter(fee=OuterRef("pk"))
    fees = PlanFee.objects.filter(
        ~Exists(listed),
        tenant=invoice.tenant_id,
        currency=invoice.currency,
        month__lte=invoice.month,
        charged_at__isnull=False,
    )
    return [
        DraftLine(
            LineKind.FEE,
            f"Plan {fee.plan.name}, {fee.month:%B %Y}",
            fee.amount_nanos,
            quantity=1,
            unit_nanos=fee.amount_nanos,
            references={"fee_id": fee.pk},
        )
        for fee in fees.select_related("plan").order_by("month", "pk")
    ]


def _credit_lines(invoice: Invoice) -> list[DraftLine]:
    """What credit paid of the exchanges, a line for each grant."""
    if not Credit.objects.filter(tenant=invoice.tenant_id).exists():
        return []
    with connection.cursor() as cursor:
        cursor.execute(_CREDITS, [invoice.pk])
        rows = cursor.fetchall()
    granted = Credit.objects.in_bulk([credit_id for credit_id, _, _ in rows])
    return [
        DraftLine(
            LineKind.CREDIT,
            f"Credit, {granted[credit_id].reason or granted[credit_id].external_id}",
            -nanos,
            exchange_count=count,
            references={"credit_id": credit_id},
        )
        for credit_id, nanos, count in rows
    ]


def _correction_lines(invoice: Invoice) -> list[DraftLine]:
    """What was given to the wallet makes the document smaller. Refunds are no corrections."""
    listed = _standing_lines().filter(adjustment=OuterRef("pk"))
    posted = Adjustment.objects.filter(
        ~Exists(listed),
        tenant=invoice.tenant_id,
        currency=invoice.currency,
        state=AdjustmentState.POSTED,
        payment=None,
        decided_at__lt=invoice.ends_at,
    )
    return [
        DraftLine(
            LineKind.CORRECTION,
            f"Correction {adjustment}: {adjustment.reason}"[:500],
            -adjustment.amount_nanos,
            references={"adjustment_id": adjustment.pk},
        )
        for adjustment in posted.order_by("pk")
    ]


def _finish(invoice: Invoice, parts: Sequence[Part], lines: list[DraftLine]) -> None:
    invoice.net_nanos = sum(line.amount_nanos for line in lines)
    invoice.total_nanos = rounded(invoice.exact_nanos).total_nanos
    invoice.exchange_count = sum(part.exchange_count for part in parts)
    if invoice.carried_in_nanos:
        words = "Remainder of the invoices before"
        lines = [*lines, DraftLine(LineKind.REMAINDER, words, invoice.carried_in_nanos)]
    InvoiceLine.objects.bulk_create(
        _row(invoice, position, line) for position, line in enumerate(lines, start=1)
    )
    invoice.save(update_fields=["net_nanos", "total_nanos", "exchange_count"])


def _row(invoice: Invoice, position: int, line: DraftLine) -> InvoiceLine:
    part = line.part
    return InvoiceLine(
        invoice=invoice,
        position=position,
        kind=line.kind,
        words=line.words,
        part=None if part is None else part.number,
        model="" if part is None else part.model,
        price_id=None if part is None else part.price_id,
        terms_id=None if part is None else part.terms_id,
        above_prompt_tokens=None if part is None else part.above_prompt_tokens,
        dimension=line.dimension,
        quantity=line.quantity,
        unit_nanos=line.unit_nanos,
        amount_nanos=line.amount_nanos,
        exchange_count=line.exchange_count,
        **line.references,
    )


def _leave_trail(invoice: Invoice, actor: str) -> None:
    record(
        AuditAction.INVOICE_DRAFTED,
        tenant_id=invoice.tenant_id,
        actor=actor,
        subject=invoice.public_id,
        reason="the month's close",
        detail={
            "month": f"{invoice.month:%Y-%m}",
            "total": text_from_nanos(invoice.total_nanos),
            "currency": invoice.currency,
        },
    )
