"""What must be true of invoices: each rule is one query for the rows that break it."""

from typing import Final

from billing.money import NANOS_PER_CENT
from billing.rating import TOKEN_CLASSES

_SUMS: Final = ", ".join(f"sum(c.{name}_tokens)::bigint AS {name}_tokens" for name in TOKEN_CLASSES)
_QUANTITY: Final = " ".join(f"WHEN '{name}' THEN s.{name}_tokens" for name in TOKEN_CLASSES)

# What the exchanges of each part of each invoice add up to.
_PARTS: Final = f"""
    SELECT m.invoice_id, m.part, count(*) AS exchanges, count(c.exchange_id) AS charges,
           sum(c.charge_nanos)::bigint AS charge_nanos, {_SUMS}
    FROM billing_invoiceexchange m
    LEFT JOIN billing_charge c ON c.exchange_id = m.exchange_id AND c.tenant_id = m.tenant_id
    GROUP BY m.invoice_id, m.part
"""  # noqa: S608  # names of our own columns

INVOICES: Final = {
    "invoice that its lines do not add up to": f"""
        SELECT i.id, i.net_nanos, i.carried_in_nanos, i.total_nanos, l.net, l.remainder
        FROM billing_invoice i
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(amount_nanos) FILTER (WHERE kind <> 'remainder'), 0) AS net,
                   coalesce(sum(amount_nanos) FILTER (WHERE kind = 'remainder'), 0) AS remainder
            FROM billing_invoiceline WHERE invoice_id = i.id) l
        WHERE l.net <> i.net_nanos OR l.remainder <> i.carried_in_nanos
           OR i.total_nanos <> greatest(0, {NANOS_PER_CENT} * div(
               l.net + l.remainder + {NANOS_PER_CENT // 2}, {NANOS_PER_CENT}))
    """,  # noqa: S608  # a constant
    "invoice lines that differ from their exchanges": f"""
        WITH parts AS MATERIALIZED ({_PARTS})
        SELECT coalesce(s.invoice_id, l.invoice_id) AS invoice_id,
               coalesce(s.part, l.part) AS part, s.charge_nanos, l.amount, s.exchanges, s.charges
        FROM parts s
        FULL JOIN (
            SELECT invoice_id, part, sum(amount_nanos) AS amount FROM billing_invoiceline
            WHERE part IS NOT NULL GROUP BY invoice_id, part
        ) l ON l.invoice_id = s.invoice_id AND l.part = s.part
        WHERE l.amount IS DISTINCT FROM s.charge_nanos OR s.charges <> s.exchanges
        UNION ALL
        SELECT l.invoice_id, l.part, l.position, l.quantity, s.exchanges, s.charges
        FROM billing_invoiceline l
        JOIN parts s ON s.invoice_id = l.invoice_id AND s.part = l.part
        WHERE l.kind = 'usage' AND l.quantity <> CASE l.dimension {_QUANTITY} END
    """,  # noqa: S608  # names of our own columns
    "invoice that lists other exchanges than it counts": """
        SELECT i.id, i.exchange_count, m.exchanges
        FROM billing_invoice i
        CROSS JOIN LATERAL (
            SELECT count(*) AS exchanges FROM billing_invoiceexchange
            WHERE invoice_id = i.id AND tenant_id = i.tenant_id
              AND is_released = (i.state = 'void')) m
        WHERE m.exchanges <> i.exchange_count
    """,
    # A settlement can be spooled for a while, and what a void invoice released waits: both are on
    # the next one.
    "exchange of a closed month on no invoice": """
        SELECT e.id, e.tenant_id, e.settled_at
        FROM (
            SELECT tenant_id, currency, max(ends_at) AS ends_at, max(created_at) AS created_at
            FROM billing_invoice WHERE state <> 'void' GROUP BY tenant_id, currency
        ) i
        JOIN billing_exchange e ON e.tenant_id = i.tenant_id AND e.currency = i.currency
        WHERE e.state = 'settled' AND NOT e.is_test AND e.created_at < i.ends_at
          AND e.settled_at < i.created_at - interval '1 day'
          AND NOT EXISTS (SELECT FROM billing_invoiceexchange m
                          WHERE m.exchange_id = e.id AND m.tenant_id = e.tenant_id)
    """,
    "fee or correction on two invoices, or at another amount": """
        SELECT min(l.id) AS line_id, l.fee_id, l.adjustment_id, count(*) AS times
        FROM billing_invoiceline l JOIN billing_invoice i ON i.id = l.invoice_id
        LEFT JOIN billing_planfee f ON f.id = l.fee_id
        LEFT JOIN billing_adjustment a ON a.id = l.adjustment_id
        WHERE i.state <> 'void' AND (l.fee_id IS NOT NULL OR l.adjustment_id IS NOT NULL)
        GROUP BY l.fee_id, l.adjustment_id
        HAVING count(*) > 1
            OR bool_or(l.amount_nanos <> coalesce(f.amount_nanos, -a.amount_nanos))
            OR bool_or(f.id IS NOT NULL AND f.charged_at IS NULL)
    """,
    "credit line that differs from its transfers": """
        SELECT l.id, l.amount_nanos, t.paid
        FROM billing_invoiceline l
        JOIN billing_credit k ON k.id = l.credit_id
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(t.amount_nanos), 0) AS paid
            FROM billing_transfer t
            JOIN billing_invoiceexchange m ON m.exchange_id = t.link AND m.tenant_id = t.tenant_id
                                          AND m.invoice_id = l.invoice_id
            WHERE t.debit_account_id = k.account_id AND t.phase = 2 AND t.tenant_id = k.tenant_id
        ) t
        WHERE l.amount_nanos <> -t.paid
    """,
    "number that a series leaves out": """
        SELECT s.name, s.last_number, count(i.id) AS invoices, max(i.number) AS highest
        FROM billing_invoiceseries s LEFT JOIN billing_invoice i ON i.series = s.name
        GROUP BY s.name
        HAVING count(i.id) <> s.last_number OR max(i.number) <> s.last_number
    """,
}
