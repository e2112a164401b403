-- The two statements of the hot path. Each takes a batch as one JSON array and answers a row for
-- each item, so that many requests share one commit (see billing/writer.py).
--
-- Both lock the wallets of the batch first, in the order of their ids: two batches can wait for
-- each other, never in a circle. What they read afterwards is read under the lock.
--
-- Both may be sent again with the same items after a lost connection: an exchange that is already
-- open, or already settled, is answered and not touched.

-- farthing_hold: open exchanges and reserve their money.
-- Items of one wallet are served in the order of the array, each if the wallet can still carry it.
-- outcome: held | refused (nothing was written).
CREATE FUNCTION farthing_hold(items jsonb)
RETURNS TABLE (n integer, outcome text, posted_nanos bigint, held_nanos bigint,
               credit_limit_nanos bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item     record;
    wallet   bigint := NULL;
    room     bigint := 0;
    accepted integer[] := '{}';
BEGIN
    PERFORM a.id
    FROM billing_account a
    WHERE a.kind = 'wallet' AND (a.tenant_id, a.currency) IN (
        SELECT i.tenant_id, i.currency
        FROM jsonb_to_recordset(items) AS i(tenant_id bigint, currency text, hold_nanos bigint)
        WHERE i.hold_nanos > 0)
    ORDER BY a.id
    FOR NO KEY UPDATE;

    FOR item IN
        SELECT i.n, i.hold_nanos, a.id AS wallet_id,
               a.posted_nanos + a.credit_limit_nanos - a.held_nanos AS available_nanos
        FROM jsonb_to_recordset(items) AS i(n integer, tenant_id bigint, currency text,
                                            hold_nanos bigint)
        LEFT JOIN billing_account a
            ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
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
        END IF;
    END LOOP;

    WITH opened AS (
        INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, price_id, hold_nanos,
                                      created_at, is_test, is_stream, currency, model,
                                      client_request_id)
        SELECT i.id, i.tenant_id, i.key_id, i.process_id, i.price_id, i.hold_nanos,
               i.created_at, i.is_test, i.is_stream, i.currency, i.model, i.client_request_id
        FROM jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, key_id bigint, process_id bigint,
            price_id bigint, hold_nanos bigint, created_at timestamptz, is_test boolean,
            is_stream boolean, currency text, model text, client_request_id text)
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
        WHERE o.hold_nanos > 0
        RETURNING debit_account_id, amount_nanos
    )
    UPDATE billing_account a
    SET held_nanos = a.held_nanos + s.sum_nanos
    FROM (SELECT debit_account_id, sum(amount_nanos)::bigint AS sum_nanos
          FROM written GROUP BY debit_account_id) s
    WHERE a.id = s.debit_account_id;

    RETURN QUERY
    SELECT i.n, CASE WHEN i.n = ANY (accepted) THEN 'held' ELSE 'refused' END,
           coalesce(a.posted_nanos, 0), coalesce(a.held_nanos, 0),
           coalesce(a.credit_limit_nanos, 0)
    FROM jsonb_to_recordset(items) AS i(n integer, tenant_id bigint, currency text)
    LEFT JOIN billing_account a
        ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency;
END
$$;

-- farthing_settle: resolve exchanges, each once.
-- What the hold does not cover is taken from what the wallet has left, never from what others
-- hold; what remains is the shortfall, which the operator bears and staff see.
-- outcome: settled | already (somebody else settled it: nothing was written) | unknown.
CREATE FUNCTION farthing_settle(items jsonb)
RETURNS TABLE (n integer, outcome text, charge_nanos bigint, shortfall_nanos bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item       record;
    wallet     bigint := NULL;
    room       bigint := 0;
    taken      bigint;
    ns         integer[] := '{}';
    charges    bigint[] := '{}';
    shortfalls bigint[] := '{}';
BEGIN
    PERFORM a.id
    FROM billing_account a
    WHERE a.kind = 'wallet' AND (a.tenant_id, a.currency) IN (
        SELECT i.tenant_id, i.currency
        FROM jsonb_to_recordset(items) AS i(tenant_id bigint, currency text))
    ORDER BY a.id
    FOR NO KEY UPDATE;

    FOR item IN
        SELECT i.n, i.cost_nanos, e.hold_nanos, a.id AS wallet_id,
               coalesce(a.posted_nanos + a.credit_limit_nanos - a.held_nanos, 0) AS available_nanos
        FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint, currency text,
                                            cost_nanos bigint)
        JOIN billing_exchange e ON e.id = i.id AND e.tenant_id = i.tenant_id
        LEFT JOIN billing_account a
            ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
        WHERE NOT EXISTS (SELECT 1 FROM billing_charge c
                          WHERE c.exchange_id = i.id AND c.tenant_id = i.tenant_id)
        ORDER BY a.id, i.n
    LOOP
        IF item.wallet_id IS DISTINCT FROM wallet THEN
            wallet := item.wallet_id;
            room := item.available_nanos;
        END IF;
        taken := least(item.cost_nanos, item.hold_nanos + greatest(room, 0));
        room := room + item.hold_nanos - taken;
        ns := ns || item.n;
        charges := charges || taken;
        shortfalls := shortfalls || (item.cost_nanos - taken);
    END LOOP;

    RETURN QUERY
    WITH decided AS (
        SELECT d.n, d.charge_nanos, d.shortfall_nanos
        FROM unnest(ns, charges, shortfalls) AS d(n, charge_nanos, shortfall_nanos)
    ), charged AS (
        INSERT INTO billing_charge (exchange_id, tenant_id, charge_nanos, shortfall_nanos,
            input_tokens, cached_input_tokens, cache_write_tokens, output_tokens,
            reasoning_tokens, audio_input_tokens, audio_output_tokens, created_at,
            usage_source, outcome, flags, vendor_usage, estimate)
        SELECT i.id, i.tenant_id, d.charge_nanos, d.shortfall_nanos,
            i.input_tokens, i.cached_input_tokens, i.cache_write_tokens, i.output_tokens,
            i.reasoning_tokens, i.audio_input_tokens, i.audio_output_tokens, i.settled_at,
            i.usage_source, i.outcome, i.flags, i.vendor_usage, i.estimate
        FROM decided d
        JOIN jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, input_tokens bigint, cached_input_tokens bigint,
            cache_write_tokens bigint, output_tokens bigint, reasoning_tokens bigint,
            audio_input_tokens bigint, audio_output_tokens bigint, settled_at timestamptz,
            usage_source text, outcome text, flags jsonb, vendor_usage jsonb, estimate jsonb)
            ON i.n = d.n
        ON CONFLICT DO NOTHING
        RETURNING exchange_id, tenant_id, charge_nanos
    ), finished AS (
        UPDATE billing_exchange e
        SET state = 'settled', settled_at = i.settled_at,
            ended_at = coalesce(i.ended_at, e.ended_at, i.settled_at),
            first_byte_ms = coalesce(i.first_byte_ms, e.first_byte_ms),
            duration_ms = coalesce(i.duration_ms, e.duration_ms),
            status_code = coalesce(i.status_code, e.status_code),
            error_code = coalesce(i.error_code, e.error_code),
            finish_reason = coalesce(i.finish_reason, e.finish_reason),
            attempts = coalesce(i.attempts, e.attempts),
            message = coalesce(i.message, e.message)
        FROM charged c
        JOIN jsonb_to_recordset(items) AS i(
            id uuid, settled_at timestamptz, ended_at timestamptz, first_byte_ms integer,
            duration_ms integer, status_code smallint, error_code text, finish_reason text,
            attempts jsonb, message jsonb) ON i.id = c.exchange_id
        WHERE e.id = c.exchange_id AND e.tenant_id = c.tenant_id
        RETURNING e.id, e.tenant_id, e.currency, e.hold_nanos, c.charge_nanos, e.settled_at
    ), written AS (
        INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                      amount_nanos, phase, code, created_at)
        SELECT f.id, f.tenant_id, w.id, r.id,
               CASE WHEN f.charge_nanos > 0 THEN f.charge_nanos ELSE f.hold_nanos END,
               CASE WHEN f.charge_nanos > 0 THEN 2 ELSE 3 END,
               CASE WHEN f.charge_nanos > 0 THEN 'charge' ELSE 'release' END,
               f.settled_at
        FROM finished f
        JOIN billing_account w ON w.kind = 'wallet' AND w.tenant_id = f.tenant_id
                              AND w.currency = f.currency
        JOIN billing_account r ON r.kind = 'revenue' AND r.tenant_id IS NULL
                              AND r.currency = f.currency
        WHERE f.charge_nanos > 0 OR f.hold_nanos > 0
        RETURNING link
    ), emptied AS (
        DELETE FROM billing_estimatejob j USING charged c WHERE j.exchange_id = c.exchange_id
        RETURNING j.exchange_id
    ), moved AS (
        UPDATE billing_account a
        SET held_nanos = a.held_nanos - s.hold_nanos,
            posted_nanos = a.posted_nanos - s.charge_nanos
        FROM (SELECT f.tenant_id, f.currency, sum(f.hold_nanos)::bigint AS hold_nanos,
                     sum(f.charge_nanos)::bigint AS charge_nanos
              FROM finished f GROUP BY f.tenant_id, f.currency) s
        WHERE a.kind = 'wallet' AND a.tenant_id = s.tenant_id AND a.currency = s.currency
          AND (s.hold_nanos > 0 OR s.charge_nanos > 0)
        RETURNING a.id
    )
    SELECT i.n,
           CASE WHEN c.exchange_id IS NOT NULL THEN 'settled'
                WHEN e.id IS NULL THEN 'unknown'
                ELSE 'already' END,
           CASE WHEN c.exchange_id IS NOT NULL THEN d.charge_nanos END,
           CASE WHEN c.exchange_id IS NOT NULL THEN d.shortfall_nanos END
    FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint)
    LEFT JOIN decided d ON d.n = i.n
    LEFT JOIN charged c ON c.exchange_id = i.id
    LEFT JOIN billing_exchange e ON e.id = i.id AND e.tenant_id = i.tenant_id;
END
$$;

-- farthing_estimate: keep what a worker needs to count an exchange.
-- An item with is_ready false is the check-point of a running stream; with is_ready true the
-- answer has ended and the exchange waits for its estimate. A settled exchange is left alone.
CREATE FUNCTION farthing_estimate(items jsonb) RETURNS TABLE (n integer, outcome text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT i.*
        FROM jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, is_ready boolean, vendor_model text, family text,
            job jsonb, request text, answer text, now timestamptz, due_at timestamptz,
            ended_at timestamptz, first_byte_ms integer, duration_ms integer, status_code smallint,
            error_code text, finish_reason text, attempts jsonb, message jsonb)
        JOIN billing_exchange e ON e.id = i.id AND e.tenant_id = i.tenant_id
        WHERE e.state <> 'settled'
        FOR NO KEY UPDATE OF e
    ), kept AS (
        INSERT INTO billing_estimatejob (exchange_id, is_ready, attempt_count, created_at, due_at,
                                         vendor_model, family, facts, request, answer)
        SELECT a.id, a.is_ready, 0, a.now, a.due_at, a.vendor_model, a.family, a.job,
               decode(a.request, 'base64'), decode(a.answer, 'base64')
        FROM asked a
        ON CONFLICT (exchange_id) DO UPDATE
        SET is_ready = billing_estimatejob.is_ready OR excluded.is_ready,
            due_at = excluded.due_at, facts = excluded.facts, answer = excluded.answer
        RETURNING exchange_id
    ), marked AS (
        UPDATE billing_exchange e
        SET state = 'estimating', ended_at = a.ended_at, first_byte_ms = a.first_byte_ms,
            duration_ms = a.duration_ms, status_code = a.status_code, error_code = a.error_code,
            finish_reason = a.finish_reason, attempts = coalesce(a.attempts, e.attempts),
            message = coalesce(a.message, e.message)
        FROM asked a
        WHERE a.is_ready AND e.id = a.id AND e.tenant_id = a.tenant_id
        RETURNING e.id
    )
    SELECT i.n, CASE WHEN k.exchange_id IS NULL THEN 'already' ELSE 'kept' END
    FROM jsonb_to_recordset(items) AS i(n integer, id uuid)
    LEFT JOIN kept k ON k.exchange_id = i.id;
END
$$;

-- farthing_refuse: keep requests that were refused before any vendor was asked, at zero.
CREATE FUNCTION farthing_refuse(items jsonb) RETURNS TABLE (n integer, outcome text)
LANGUAGE sql AS $$
    WITH asked AS MATERIALIZED (
        SELECT i.*
        FROM jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, key_id bigint, process_id bigint,
            created_at timestamptz, ended_at timestamptz, duration_ms integer,
            status_code smallint, is_test boolean, is_stream boolean, currency text, model text,
            error_code text, client_request_id text, message jsonb)
    ), kept AS (
        INSERT INTO billing_exchange (id, tenant_id, key_id, process_id, created_at, ended_at,
                                      settled_at, duration_ms, status_code, is_test, is_stream,
                                      state, currency, model, error_code, client_request_id,
                                      message)
        SELECT a.id, a.tenant_id, a.key_id, a.process_id, a.created_at, a.ended_at, a.ended_at,
               a.duration_ms, a.status_code, a.is_test, a.is_stream, 'settled', a.currency,
               a.model, a.error_code, a.client_request_id, a.message
        FROM asked a
        ON CONFLICT DO NOTHING
        RETURNING id, tenant_id, settled_at
    ), charged AS (
        INSERT INTO billing_charge (exchange_id, tenant_id, charge_nanos, created_at, usage_source,
                                    outcome)
        SELECT k.id, k.tenant_id, 0, k.settled_at, 'none', 'refused'
        FROM kept k
        ON CONFLICT DO NOTHING
    )
    SELECT a.n, 'kept' FROM asked a
$$;
