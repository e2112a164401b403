"""What must be true of the ledger: each rule is one query for the rows that break it."""

from typing import Final

from billing.audit.invoices import INVOICES

FIGURES: Final = {
    "accounts": "SELECT count(*) FROM billing_account",
    "transfers": "SELECT count(*) FROM billing_transfer",
    "exchanges": "SELECT count(*) FROM billing_exchange",
    "charges": "SELECT count(*) FROM billing_charge",
    "open_holds": "SELECT count(*) FROM billing_exchange WHERE state <> 'settled'",
    "invoices": "SELECT count(*) FROM billing_invoice",
    "held_nanos": "SELECT coalesce(sum(held_nanos), 0)::bigint FROM billing_account",
}

BALANCES: Final = {
    "balance differs from its transfers": """
        SELECT a.id, a.posted_nanos, coalesce(t.posted, 0) AS recomputed
        FROM billing_account a
        LEFT JOIN (
            SELECT account_id, sum(amount)::bigint AS posted FROM (
                SELECT credit_account_id AS account_id, sum(amount_nanos) AS amount
                FROM billing_transfer WHERE phase IN (0, 2) GROUP BY credit_account_id
                UNION ALL
                SELECT debit_account_id, -sum(amount_nanos)
                FROM billing_transfer WHERE phase IN (0, 2) GROUP BY debit_account_id
            ) moves GROUP BY account_id
        ) t ON t.account_id = a.id
        WHERE a.kind IN ('wallet', 'credit') AND a.posted_nanos <> coalesce(t.posted, 0)
    """,
    # What a settled exchange held is posted or voided: a rule below says so.
    "held money differs from its pending transfers": """
        SELECT a.id, a.held_nanos, coalesce(t.held, 0) AS recomputed
        FROM billing_account a
        LEFT JOIN (
            SELECT p.debit_account_id AS account_id, sum(p.amount_nanos)::bigint AS held
            FROM billing_exchange e
            JOIN billing_transfer p ON p.link = e.id AND p.tenant_id = e.tenant_id AND p.phase = 1
            WHERE e.state <> 'settled'
            GROUP BY p.debit_account_id
        ) t ON t.account_id = a.id
        WHERE a.held_nanos <> coalesce(t.held, 0)
    """,
    "overspent account": """
        SELECT a.id, a.posted_nanos, a.held_nanos FROM billing_account a
        WHERE a.posted_nanos + a.credit_limit_nanos - a.held_nanos < 0
    """,
    "credit that its wallet does not know of": """
        SELECT c.id, c.posted_nanos FROM billing_account c
        LEFT JOIN billing_account w ON w.kind = 'wallet' AND w.tenant_id = c.tenant_id
                                   AND w.currency = c.currency
        WHERE c.kind = 'credit' AND c.posted_nanos > 0 AND w.has_credits IS NOT TRUE
    """,
}

# An exchange, its hold, its charge, and what was written for each account that it holds on.
RESOLUTIONS: Final = {
    "hold of an exchange differs from its pending transfers": """
        SELECT e.id, e.hold_nanos, e.credit_nanos, coalesce(t.held, 0) AS held,
               coalesce(t.credit, 0) AS held_on_credit
        FROM billing_exchange e
        LEFT JOIN (
            SELECT p.link, p.tenant_id, sum(p.amount_nanos) AS held,
                   sum(p.amount_nanos) FILTER (WHERE a.kind = 'credit') AS credit
            FROM billing_transfer p JOIN billing_account a ON a.id = p.debit_account_id
            WHERE p.phase = 1 GROUP BY p.link, p.tenant_id
        ) t ON t.link = e.id AND t.tenant_id = e.tenant_id
        WHERE e.hold_nanos <> coalesce(t.held, 0)
           OR coalesce(e.credit_nanos, 0) <> coalesce(t.credit, 0)
    """,
    "settled exchange without its charge": """
        SELECT e.id, e.hold_nanos FROM billing_exchange e
        WHERE e.state = 'settled' AND NOT EXISTS (
            SELECT FROM billing_charge c WHERE c.exchange_id = e.id AND c.tenant_id = e.tenant_id)
    """,
    "charge of an exchange that is not settled": """
        SELECT c.exchange_id, c.charge_nanos FROM billing_charge c
        WHERE NOT EXISTS (
            SELECT FROM billing_exchange e
            WHERE e.id = c.exchange_id AND e.tenant_id = c.tenant_id AND e.state = 'settled')
    """,
    "charge differs from its posted transfers": """
        SELECT coalesce(c.exchange_id, t.link) AS exchange_id,
               coalesce(c.charge_nanos, 0) AS charge_nanos, coalesce(t.posted, 0) AS posted
        FROM (SELECT exchange_id, tenant_id, charge_nanos FROM billing_charge
              WHERE charge_nanos > 0) c
        FULL JOIN (
            SELECT link, tenant_id, sum(amount_nanos) AS posted
            FROM billing_transfer WHERE phase = 2 GROUP BY link, tenant_id
        ) t ON t.link = c.exchange_id AND t.tenant_id = c.tenant_id
        WHERE coalesce(c.charge_nanos, 0) <> coalesce(t.posted, 0)
    """,
    "hold neither posted nor voided, or voided for another amount": """
        SELECT h.link, h.account_id, h.held, h.posted, h.voided
        FROM (
            SELECT link, tenant_id, debit_account_id AS account_id,
                   sum(amount_nanos) FILTER (WHERE phase = 1) AS held,
                   sum(amount_nanos) FILTER (WHERE phase = 2) AS posted,
                   sum(amount_nanos) FILTER (WHERE phase = 3) AS voided
            FROM billing_transfer WHERE phase <> 0
            GROUP BY link, tenant_id, debit_account_id
        ) h
        JOIN billing_exchange e ON e.id = h.link AND e.tenant_id = h.tenant_id
        WHERE CASE WHEN e.state = 'settled'
                   THEN h.posted IS NULL AND h.voided IS DISTINCT FROM h.held
                   ELSE h.posted IS NOT NULL OR h.voided IS NOT NULL END
    """,
    "transfer of an unknown account or tenant": """
        SELECT t.id, t.link
        FROM billing_transfer t
        LEFT JOIN billing_account d ON d.id = t.debit_account_id
        LEFT JOIN billing_account c ON c.id = t.credit_account_id
        WHERE d.id IS NULL OR c.id IS NULL OR d.currency <> c.currency
           OR coalesce(d.tenant_id, c.tenant_id) IS DISTINCT FROM t.tenant_id
    """,
    "transfer of an unknown exchange": """
        SELECT t.id, t.link
        FROM billing_transfer t
        LEFT JOIN billing_exchange e ON e.id = t.link AND e.tenant_id = t.tenant_id
        WHERE t.phase <> 0 AND e.id IS NULL
    """,
}

# Money that came, went or was given, other than by charges: each act and its one transfer.
ACTS: Final = {
    "payment, grant, adjustment or fee differs from its transfer": """
        SELECT coalesce(a.link, t.link) AS link, a.what, a.amount, t.amount AS transferred
        FROM (
            SELECT link, tenant_id, 'top_up' AS what, amount_nanos AS amount FROM billing_payment
            UNION ALL
            SELECT link, tenant_id, 'grant', amount_nanos FROM billing_credit
            UNION ALL
            SELECT link, tenant_id,
                   CASE WHEN payment_id IS NULL THEN 'adjustment' ELSE 'refund' END, amount_nanos
            FROM billing_adjustment WHERE state = 'posted'
            UNION ALL
            SELECT link, tenant_id, 'fee', -amount_nanos
            FROM billing_planfee WHERE charged_at IS NOT NULL
        ) a
        FULL JOIN (
            SELECT t.link, t.tenant_id, t.code,
                   sum(CASE WHEN d.tenant_id IS NULL THEN t.amount_nanos
                            ELSE -t.amount_nanos END) AS amount
            FROM billing_transfer t JOIN billing_account d ON d.id = t.debit_account_id
            WHERE t.phase = 0 AND t.code <> 'expiry'
            GROUP BY t.link, t.tenant_id, t.code
        ) t ON t.link = a.link AND t.tenant_id = a.tenant_id AND t.code = a.what
        WHERE t.amount IS DISTINCT FROM a.amount
    """,
    "refunds above their payment": """
        SELECT p.external_id, p.amount_nanos, -sum(a.amount_nanos) AS refunded
        FROM billing_payment p JOIN billing_adjustment a ON a.payment_id = p.id
        WHERE a.state = 'posted'
        GROUP BY p.id HAVING -sum(a.amount_nanos) > p.amount_nanos
    """,
    "code that was not credited exactly once": """
        SELECT c.id, c.redeemed_at, count(g.tenant_id) AS credited
        FROM billing_redemptioncode c
        LEFT JOIN (
            SELECT external_id, tenant_id, amount_nanos FROM billing_payment
            UNION ALL
            SELECT external_id, tenant_id, amount_nanos FROM billing_credit
        ) g ON g.external_id = 'redemption-code-' || c.id
        GROUP BY c.id
        HAVING count(g.tenant_id) <> (c.redeemed_at IS NOT NULL)::integer
            OR bool_or(g.tenant_id <> c.redeemed_by_id OR g.amount_nanos <> c.amount_nanos)
    """,
}

LIMITS: Final = {
    "spend counter holds another amount than its open exchanges": """
        SELECT c.id, c.limit_id, c.held_nanos, coalesce(t.held, 0) AS recomputed
        FROM billing_spendcounter c
        LEFT JOIN (
            SELECT n.id, sum(e.hold_nanos) AS held
            FROM billing_exchange e CROSS JOIN LATERAL unnest(e.counters) AS n(id)
            WHERE e.state <> 'settled' AND e.counters IS NOT NULL GROUP BY n.id
        ) t ON t.id = c.id
        WHERE c.held_nanos <> coalesce(t.held, 0)
    """,
    "spend counter differs from the charges of its period": """
        SELECT c.id, c.limit_id, c.posted_nanos, t.posted AS recomputed
        FROM billing_spendlimit l
        CROSS JOIN LATERAL farthing_period(l.period, now(), l.time_zone) p
        JOIN billing_spendcounter c ON c.limit_id = l.id AND c.starts_at = p.starts_at
        CROSS JOIN LATERAL (
            SELECT coalesce(sum(g.charge_nanos), 0) AS posted
            FROM farthing_counted(l.id, now()) e
            JOIN billing_charge g ON g.exchange_id = e.id AND g.tenant_id = e.tenant_id) t
        WHERE l.removed_at IS NULL AND c.posted_nanos <> t.posted
    """,
    "limit that its wallet does not know of": """
        SELECT l.id, l.account_id FROM billing_spendlimit l
        JOIN billing_account a ON a.id = l.account_id
        WHERE l.removed_at IS NULL AND NOT a.has_limits
    """,
}

CHECKS: Final = {**BALANCES, **RESOLUTIONS, **ACTS, **LIMITS, **INVOICES}

# Charge and shortfall are what the usage costs at its price version. `rates` is one row for each
# tier of each version that was used: see billing.rates.
RATED: Final = "charge that its usage and price do not explain"
RATED_QUERY: Final = """
    WITH rates AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r(
            price_id bigint, terms_id bigint, above bigint, up_to bigint, input bigint,
            cached_input bigint, cache_write bigint, image_input bigint, audio_input bigint,
            output bigint, reasoning bigint, audio_output bigint, per_request bigint)
    ), counted AS (
        SELECT c.*, e.price_id, coalesce(e.terms_id, 0) AS terms_id,
               c.input_tokens + c.cached_input_tokens + c.cache_write_tokens
                   + c.image_input_tokens + c.audio_input_tokens AS prompt_tokens
        FROM billing_charge c
        JOIN billing_exchange e ON e.id = c.exchange_id AND e.tenant_id = c.tenant_id
        WHERE e.price_id IS NOT NULL AND c.usage_source <> 'none'
    ), rated AS (
        SELECT c.exchange_id, c.charge_nanos, c.shortfall_nanos,
               CASE c.input_tokens WHEN 0 THEN 0
                 ELSE div(c.input_tokens::numeric * r.input + 500000, 1000000) END
               + CASE c.cached_input_tokens WHEN 0 THEN 0
                 ELSE div(c.cached_input_tokens::numeric * r.cached_input + 500000, 1000000) END
               + CASE c.cache_write_tokens WHEN 0 THEN 0
                 ELSE div(c.cache_write_tokens::numeric * r.cache_write + 500000, 1000000) END
               + CASE c.image_input_tokens WHEN 0 THEN 0
                 ELSE div(c.image_input_tokens::numeric * r.image_input + 500000, 1000000) END
               + CASE c.audio_input_tokens WHEN 0 THEN 0
                 ELSE div(c.audio_input_tokens::numeric * r.audio_input + 500000, 1000000) END
               + CASE c.output_tokens WHEN 0 THEN 0
                 ELSE div(c.output_tokens::numeric * r.output + 500000, 1000000) END
               + CASE c.reasoning_tokens WHEN 0 THEN 0
                 ELSE div(c.reasoning_tokens::numeric * r.reasoning + 500000, 1000000) END
               + CASE c.audio_output_tokens WHEN 0 THEN 0
                 ELSE div(c.audio_output_tokens::numeric * r.audio_output + 500000, 1000000) END
               + r.per_request AS cost_nanos
        FROM counted c
        LEFT JOIN rates r ON r.price_id = c.price_id AND r.terms_id = c.terms_id
                    AND c.prompt_tokens > r.above AND c.prompt_tokens <= r.up_to
    )
    SELECT exchange_id, charge_nanos, shortfall_nanos, cost_nanos
    FROM rated WHERE charge_nanos + shortfall_nanos IS DISTINCT FROM cost_nanos
"""
