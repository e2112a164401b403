-- farthing_hold as in 0005_ledger.sql, but that an exchange which stands twice in one batch is answered
-- as held both times, also where the wallet has room for one.

CREATE OR REPLACE FUNCTION farthing_hold(items jsonb)
RETURNS TABLE (n integer, outcome text, posted_nanos bigint, held_nanos bigint,
               credit_limit_nanos bigint, refusal jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item       record;
    wallet     bigint := NULL;
    room       bigint := 0;
    accepted   integer[] := '{}';
    opening    uuid[] := '{}'; -- exchanges of this batch that the short path holds
    is_special boolean;        -- has any wallet of the batch credits or limits?
    special    uuid[] := '{}'; -- exchanges whose money farthing_reserve holds
    answers    jsonb := '{}';  -- what it answered, by number
BEGIN
    SELECT coalesce(bool_or(w.is_special), false) INTO is_special
    FROM (
        SELECT a.has_credits OR a.has_limits AS is_special
        FROM billing_account a
        WHERE a.kind = 'wallet' AND (a.tenant_id, a.currency) IN (
            SELECT i.tenant_id, i.currency
            FROM jsonb_to_recordset(items) AS i(tenant_id bigint, currency text, hold_nanos bigint)
            WHERE i.hold_nanos > 0)
        ORDER BY a.id
        FOR NO KEY UPDATE) w;

    IF is_special THEN
        FOR item IN
            SELECT i.n, i.id, i.tenant_id, i.key_id, i.hold_nanos, i.created_at, a.id AS wallet_id
            FROM jsonb_to_recordset(items) AS i(
                n integer, id uuid, tenant_id bigint, key_id bigint, currency text,
                hold_nanos bigint, created_at timestamptz)
            JOIN billing_account a
                ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
            WHERE i.hold_nanos > 0 AND (a.has_credits OR a.has_limits)
            ORDER BY i.n
        LOOP
            IF item.id = ANY (special) OR EXISTS (
                SELECT FROM billing_exchange e
                WHERE e.id = item.id AND e.tenant_id = item.tenant_id)
            THEN
                accepted := accepted || item.n;
                CONTINUE;
            END IF;
            answers := answers || jsonb_build_object(item.n, farthing_reserve(
                item.wallet_id, item.id, item.key_id, item.hold_nanos, item.created_at));
            IF NOT answers -> item.n::text ? 'refusal' THEN
                accepted := accepted || item.n;
                special := special || item.id;
            END IF;
        END LOOP;
    END IF;

    FOR item IN
        SELECT i.n, i.id, i.tenant_id, i.hold_nanos, a.id AS wallet_id,
               a.posted_nanos + a.credit_limit_nanos - a.held_nanos AS available_nanos
        FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint, currency text,
                                            hold_nanos bigint)
        LEFT JOIN billing_account a
            ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
        WHERE i.hold_nanos = 0 OR (a.has_credits OR a.has_limits) IS NOT TRUE
        ORDER BY a.id, i.n
    LOOP
        IF item.wallet_id IS DISTINCT FROM wallet THEN
            wallet := item.wallet_id;
            room := item.available_nanos;
        END IF;
        IF item.hold_nanos = 0 THEN
            accepted := accepted || item.n;
        ELSIF item.hold_nanos <= room THEN
            room := room - item.hold_nanos;
            accepted := accepted || item.n;
            opening := opening || item.id;
        ELSIF item.id = ANY (opening) OR EXISTS (
            SELECT FROM billing_exchange e
            WHERE e.id = item.id AND e.tenant_id = item.tenant_id)
        THEN
            accepted := accepted || item.n;  -- sent again, and held before
        END IF;
    END LOOP;

    WITH opened AS (
        INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, price_id, terms_id,
                                      hold_nanos, credit_nanos, counters, created_at, is_test,
                                      is_stream, currency, model, client_request_id)
        SELECT i.id, i.tenant_id, i.key_id, i.process_id, i.price_id, i.terms_id,
               i.hold_nanos, (answers -> i.n::text ->> 'credit_nanos')::bigint,
               (answers -> i.n::text ->> 'counters')::bigint[], i.created_at, i.is_test,
               i.is_stream, i.currency, i.model, i.client_request_id
        FROM jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, key_id bigint, process_id bigint,
            price_id bigint, terms_id bigint, hold_nanos bigint, created_at timestamptz,
            is_test boolean, is_stream boolean, currency text, model text, client_request_id text)
        WHERE i.n = ANY (accepted)
        ON CONFLICT DO NOTHING
        RETURNING id, tenant_id, currency, hold_nanos, created_at
    ), written AS (
        INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                      amount_nanos, phase, code, created_at)
        SELECT o.id, o.tenant_id, w.id, r.id, o.hold_nanos, 1, 'hold', o.created_at
        FROM opened o
        JOIN billing_account w ON w.kind = 'wallet' AND w.tenant_id = o.tenant_id
                              AND w.currency = o.currency
        JOIN billing_account r ON r.kind = 'revenue' AND r.tenant_id IS NULL
                              AND r.currency = o.currency
        WHERE o.hold_nanos > 0 AND o.id <> ALL (special)
        RETURNING debit_account_id, amount_nanos
    )
    UPDATE billing_account a
    SET held_nanos = a.held_nanos + s.sum_nanos
    FROM (SELECT debit_account_id, sum(amount_nanos)::bigint AS sum_nanos
          FROM written GROUP BY debit_account_id) s
    WHERE a.id = s.debit_account_id;

    RETURN QUERY
    SELECT i.n, CASE WHEN i.n = ANY (accepted) THEN 'held' ELSE 'refused' END,
           coalesce(a.posted_nanos + c.posted_nanos, 0)::bigint,
           coalesce(a.held_nanos + c.held_nanos, 0)::bigint,
           coalesce(a.credit_limit_nanos, 0),
           nullif(answers -> i.n::text -> 'refusal', 'null'::jsonb)
    FROM jsonb_to_recordset(items) AS i(n integer, tenant_id bigint, currency text,
                                        created_at timestamptz)
    LEFT JOIN billing_account a
        ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
    LEFT JOIN LATERAL (
        SELECT coalesce(sum(c.posted_nanos), 0) AS posted_nanos,
               coalesce(sum(c.held_nanos), 0) AS held_nanos
        FROM billing_account c
        WHERE a.has_credits AND c.kind = 'credit' AND c.tenant_id = a.tenant_id
          AND c.currency = a.currency AND c.expires_at > i.created_at) c ON true;
END
$$;
