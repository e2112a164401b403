-- The statements of the hot path again, now with credits and spend limits; and farthing_extend.
--
-- Locks. A statement locks the wallets of its batch first, in the order of their ids. A wallet's
-- lock guards the credits and the spend counters of its tenant and currency as well, so there is
-- nothing more to lock and no other order to keep. Whatever else moves a tenant's money locks the
-- wallet first too (billing/locks.py).
--
-- Speed. A wallet without credits and limits takes the path of before: the batch as a whole, by
-- sets. Others are decided one by one. The wallet's two flags say which, in the row that is locked
-- anyway.
--
-- Every statement may be sent again with the same items after a lost connection: an exchange that
-- is already open, extended or settled is answered and not touched.

DROP FUNCTION farthing_hold(jsonb), farthing_settle(jsonb);

-- When a limit's period began at a moment, in the limit's time zone, and when the next one begins.
CREATE FUNCTION farthing_period(period text, at_time timestamptz, zone text)
RETURNS TABLE (starts_at timestamptz, resets_at timestamptz)
LANGUAGE sql STABLE AS $$
    SELECT CASE period
               WHEN 'total' THEN 'epoch'::timestamptz
               WHEN 'hour' THEN date_trunc('hour', at_time, 'UTC')
               ELSE date_trunc(period, at_time AT TIME ZONE zone) AT TIME ZONE zone END,
           CASE period
               WHEN 'total' THEN NULL
               WHEN 'hour' THEN date_trunc('hour', at_time, 'UTC') + interval '1 hour'
               ELSE (date_trunc(period, at_time AT TIME ZONE zone)
                     + ('1 ' || period)::interval) AT TIME ZONE zone END
$$;

-- The limits that count an exchange of this key, each as it stands in the period of `at_time`.
CREATE FUNCTION farthing_limits(of_wallet bigint, of_key bigint, at_time timestamptz)
RETURNS TABLE (limit_id bigint, scope text, period text, action text, starts_at timestamptz,
               resets_at timestamptz, amount_nanos bigint, posted_nanos bigint, held_nanos bigint)
LANGUAGE sql STABLE AS $$
    SELECT l.id,
           CASE WHEN l.key_id IS NOT NULL THEN 'key'
                WHEN l.user_id IS NOT NULL THEN 'member' ELSE 'tenant' END,
           l.period, l.action, p.starts_at, p.resets_at,
           CASE WHEN l.raised_until > at_time THEN l.raised_nanos ELSE l.amount_nanos END,
           coalesce(c.posted_nanos, 0), coalesce(c.held_nanos, 0)
    FROM billing_spendlimit l
    CROSS JOIN LATERAL farthing_period(l.period, at_time, l.time_zone) p
    LEFT JOIN billing_spendcounter c ON c.limit_id = l.id AND c.starts_at = p.starts_at
    WHERE l.account_id = of_wallet AND l.removed_at IS NULL
      AND (l.key_id IS NULL OR l.key_id = of_key)
      AND (l.user_id IS NULL
           OR l.user_id = (SELECT k.created_by_id FROM keys_apikey k WHERE k.id = of_key))
$$;

-- The hard limit that `nanos` more would pass, the tightest where it would pass several.
CREATE FUNCTION farthing_limit_passed(of_wallet bigint, of_key bigint, at_time timestamptz,
                                      nanos bigint) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'limit_id', l.limit_id, 'scope', l.scope, 'period', l.period,
        'amount_nanos', l.amount_nanos, 'posted_nanos', l.posted_nanos,
        'held_nanos', l.held_nanos, 'needed_nanos', nanos, 'resets_at', l.resets_at)
    FROM farthing_limits(of_wallet, of_key, at_time) l
    WHERE l.action = 'hard' AND l.posted_nanos + l.held_nanos + nanos > l.amount_nanos
    ORDER BY l.amount_nanos - l.posted_nanos, l.limit_id
    LIMIT 1
$$;

-- What can be spent at a moment, and in which order: credits, the soonest to expire first, then
-- the wallet.
CREATE FUNCTION farthing_sources(of_wallet bigint, at_time timestamptz)
RETURNS TABLE (id bigint, kind text, expires_at timestamptz, room bigint)
LANGUAGE sql STABLE AS $$
    SELECT w.id, w.kind, w.expires_at, w.posted_nanos + w.credit_limit_nanos - w.held_nanos
    FROM billing_account w WHERE w.id = of_wallet
    UNION ALL
    SELECT c.id, c.kind, c.expires_at, c.posted_nanos - c.held_nanos
    FROM billing_account w
    JOIN billing_account c ON c.kind = 'credit' AND c.tenant_id = w.tenant_id
                          AND c.currency = w.currency
    WHERE w.id = of_wallet AND c.expires_at > at_time AND c.posted_nanos > c.held_nanos
$$;

-- Hold `nanos` on credits and wallet. Answers the part that rests on credits; NULL if together
-- they cannot carry it, and then nothing was written.
CREATE FUNCTION farthing_pend(of_wallet bigint, of_exchange uuid, nanos bigint,
                              at_time timestamptz) RETURNS bigint
LANGUAGE sql AS $$
    WITH ordered AS (
        SELECT s.id, s.kind, s.room, sum(s.room) OVER () AS total_nanos,
               sum(s.room) OVER (ORDER BY s.kind = 'wallet', s.expires_at, s.id) - s.room
                   AS before_nanos
        FROM farthing_sources(of_wallet, at_time) s
        WHERE s.room > 0
    ), parts AS (
        SELECT o.id, o.kind, least(o.room, nanos - o.before_nanos)::bigint AS part_nanos
        FROM ordered o
        WHERE o.before_nanos < nanos AND o.total_nanos >= nanos
    ), written AS (
        INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                      amount_nanos, phase, code, created_at)
        SELECT of_exchange, w.tenant_id, p.id, r.id, p.part_nanos, 1, 'hold', at_time
        FROM parts p
        JOIN billing_account w ON w.id = of_wallet
        JOIN billing_account r ON r.kind = 'revenue' AND r.tenant_id IS NULL
                              AND r.currency = w.currency
    ), moved AS (
        UPDATE billing_account a SET held_nanos = a.held_nanos + p.part_nanos
        FROM parts p WHERE a.id = p.id
    )
    SELECT coalesce(sum(p.part_nanos) FILTER (WHERE p.kind = 'credit'), 0)::bigint
    FROM parts p HAVING count(*) > 0
$$;

-- Hold money and count it in every limit. Answers what the exchange keeps of it,
-- {"credit_nanos", "counters"}, or {"refusal"}: the limit that is in the way, null for the money.
CREATE FUNCTION farthing_reserve(of_wallet bigint, of_exchange uuid, of_key bigint, nanos bigint,
                                 at_time timestamptz) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    refusal  jsonb := farthing_limit_passed(of_wallet, of_key, at_time, nanos);
    credit   bigint;
    counted  bigint[];
BEGIN
    IF refusal IS NULL THEN
        credit := farthing_pend(of_wallet, of_exchange, nanos, at_time);
    END IF;
    IF credit IS NULL THEN
        RETURN jsonb_build_object('refusal', refusal);
    END IF;
    WITH counting AS (
        INSERT INTO billing_spendcounter AS c (limit_id, starts_at, posted_nanos, held_nanos,
                                               told_percent)
        SELECT l.limit_id, l.starts_at, 0, nanos, 0
        FROM farthing_limits(of_wallet, of_key, at_time) l
        ON CONFLICT (limit_id, starts_at) DO UPDATE
        SET held_nanos = c.held_nanos + excluded.held_nanos
        RETURNING c.id)
    SELECT array_agg(counting.id) INTO counted FROM counting;
    RETURN jsonb_build_object('credit_nanos', nullif(credit, 0), 'counters', counted::text);
END
$$;

-- farthing_hold: open exchanges and reserve their money.
-- Items of one wallet are served in the order of the array, each if the wallet can still carry it.
-- outcome: held | refused (nothing was written). The sums are the wallet's and its credits'.
-- refusal: the spend limit that is in the way, as farthing_limit_passed answers it.
CREATE FUNCTION farthing_hold(items jsonb)
RETURNS TABLE (n integer, outcome text, posted_nanos bigint, held_nanos bigint,
               credit_limit_nanos bigint, refusal jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item       record;
    wallet     bigint := NULL;
    room       bigint := 0;
    accepted   integer[] := '{}';
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
        ELSIF EXISTS (SELECT FROM billing_exchange e
                      WHERE e.id = item.id AND e.tenant_id = item.tenant_id) THEN
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

-- farthing_extend: hold more for exchanges that go on, up to a new `hold_nanos` in all.
-- outcome: extended | refused (nothing was written) | closed (it is settled, or was never opened).
CREATE FUNCTION farthing_extend(items jsonb)
RETURNS TABLE (n integer, outcome text, hold_nanos bigint, refusal jsonb)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item     record;
    exchange record;
    more     bigint;
    credit   bigint;
BEGIN
    PERFORM a.id
    FROM billing_account a
    WHERE a.kind = 'wallet' AND (a.tenant_id, a.currency) IN (
        SELECT i.tenant_id, i.currency
        FROM jsonb_to_recordset(items) AS i(tenant_id bigint, currency text))
    ORDER BY a.id
    FOR NO KEY UPDATE;

    FOR item IN
        SELECT i.n, i.id, i.tenant_id, i.hold_nanos, i.extended_at, a.id AS wallet_id
        FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint, currency text,
                                            hold_nanos bigint, extended_at timestamptz)
        LEFT JOIN billing_account a
            ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
        ORDER BY i.n
    LOOP
        n := item.n;
        refusal := NULL;
        SELECT e.hold_nanos, e.counters INTO exchange
        FROM billing_exchange e
        WHERE e.id = item.id AND e.tenant_id = item.tenant_id AND e.state = 'open'
        FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            outcome := 'closed';
            hold_nanos := NULL;
            RETURN NEXT;
            CONTINUE;
        END IF;
        outcome := 'extended';
        hold_nanos := greatest(exchange.hold_nanos, item.hold_nanos);
        more := hold_nanos - exchange.hold_nanos;
        IF more > 0 THEN
            refusal := farthing_counter_passed(exchange.counters, item.extended_at, more);
            credit := NULL;
            IF refusal IS NULL THEN
                credit := farthing_pend(item.wallet_id, item.id, more, item.extended_at);
            END IF;
            IF credit IS NULL THEN
                outcome := 'refused';
                hold_nanos := exchange.hold_nanos;
            ELSE
                UPDATE billing_spendcounter c SET held_nanos = c.held_nanos + more
                WHERE c.id = ANY (exchange.counters);
                UPDATE billing_exchange e
                SET hold_nanos = item.hold_nanos,
                    credit_nanos = nullif(coalesce(e.credit_nanos, 0) + credit, 0)
                WHERE e.id = item.id AND e.tenant_id = item.tenant_id;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- As farthing_limit_passed, for the counters in which an exchange is counted already.
CREATE FUNCTION farthing_counter_passed(of_counters bigint[], at_time timestamptz, nanos bigint)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'limit_id', l.id,
        'scope', CASE WHEN l.key_id IS NOT NULL THEN 'key'
                      WHEN l.user_id IS NOT NULL THEN 'member' ELSE 'tenant' END,
        'period', l.period, 'amount_nanos', a.amount_nanos, 'posted_nanos', c.posted_nanos,
        'held_nanos', c.held_nanos, 'needed_nanos', nanos, 'resets_at', p.resets_at)
    FROM billing_spendcounter c
    JOIN billing_spendlimit l ON l.id = c.limit_id
    CROSS JOIN LATERAL farthing_period(l.period, c.starts_at, l.time_zone) p
    CROSS JOIN LATERAL (SELECT CASE WHEN l.raised_until > at_time THEN l.raised_nanos
                                    ELSE l.amount_nanos END AS amount_nanos) a
    WHERE c.id = ANY (of_counters) AND l.removed_at IS NULL AND l.action = 'hard'
      AND c.posted_nanos + c.held_nanos + nanos > a.amount_nanos
    ORDER BY a.amount_nanos - c.posted_nanos, l.id
    LIMIT 1
$$;

-- Post or void what one exchange holds, on each account it holds on; take what its cost is more
-- from what is free; count it. Answers the charge, and by how much the wallet's room changed.
CREATE FUNCTION farthing_resolve(of_wallet bigint, of_exchange uuid, cost_nanos bigint,
                                 hold_nanos bigint, of_counters bigint[], at_time timestamptz,
                                 OUT charge_nanos bigint, OUT room_nanos bigint)
LANGUAGE sql AS $$
    WITH pending AS (
        SELECT t.debit_account_id AS id, sum(t.amount_nanos)::bigint AS held_nanos
        FROM billing_transfer t
        JOIN billing_account w ON w.id = of_wallet
        WHERE t.link = of_exchange AND t.tenant_id = w.tenant_id AND t.phase = 1
        GROUP BY t.debit_account_id
    ), sources AS (
        SELECT a.id, a.kind, a.expires_at, p.held_nanos AS room, 1 AS turn
        FROM pending p JOIN billing_account a ON a.id = p.id
        UNION ALL
        SELECT s.id, s.kind, s.expires_at, s.room, 2
        FROM farthing_sources(of_wallet, at_time) s
        WHERE cost_nanos > hold_nanos AND s.room > 0
    ), ordered AS (
        SELECT s.id, s.room, sum(s.room) OVER (
            ORDER BY s.turn, s.kind = 'wallet', s.expires_at, s.id) - s.room AS before_nanos
        FROM sources s
    ), paid AS (
        SELECT o.id, sum(least(o.room, cost_nanos - o.before_nanos))::bigint AS paid_nanos
        FROM ordered o WHERE o.before_nanos < cost_nanos GROUP BY o.id
    ), parts AS (
        SELECT id, coalesce(n.held_nanos, 0) AS held_nanos, coalesce(d.paid_nanos, 0) AS paid_nanos
        FROM pending n FULL JOIN paid d USING (id)
    ), written AS (
        INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                      amount_nanos, phase, code, created_at)
        SELECT of_exchange, w.tenant_id, p.id, r.id,
               CASE WHEN p.paid_nanos > 0 THEN p.paid_nanos ELSE p.held_nanos END,
               CASE WHEN p.paid_nanos > 0 THEN 2 ELSE 3 END,
               CASE WHEN p.paid_nanos > 0 THEN 'charge' ELSE 'release' END,
               at_time
        FROM parts p
        JOIN billing_account w ON w.id = of_wallet
        JOIN billing_account r ON r.kind = 'revenue' AND r.tenant_id IS NULL
                              AND r.currency = w.currency
    ), moved AS (
        UPDATE billing_account a
        SET held_nanos = a.held_nanos - p.held_nanos, posted_nanos = a.posted_nanos - p.paid_nanos
        FROM parts p WHERE a.id = p.id
    ), counted AS (
        UPDATE billing_spendcounter c
        SET held_nanos = c.held_nanos - hold_nanos,
            posted_nanos = c.posted_nanos + (SELECT coalesce(sum(p.paid_nanos), 0) FROM parts p)
        WHERE c.id = ANY (of_counters)
    )
    SELECT coalesce(sum(p.paid_nanos), 0)::bigint,
           coalesce(sum(p.held_nanos - p.paid_nanos) FILTER (WHERE p.id = of_wallet), 0)::bigint
    FROM parts p
$$;

-- farthing_settle: resolve exchanges, each once.
-- What the hold does not cover is taken from what credits and wallet have left, never from what
-- others hold; what remains is the shortfall, which the operator bears and staff see.
-- outcome: settled | already (somebody else settled it: nothing was written) | unknown.
CREATE FUNCTION farthing_settle(items jsonb)
RETURNS TABLE (n integer, outcome text, charge_nanos bigint, shortfall_nanos bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    item       record;
    resolved   record;
    wallet     bigint := NULL;
    room       bigint := 0;
    taken      bigint;
    special    uuid[] := '{}';  -- exchanges whose money farthing_resolve moved
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
        SELECT i.n, i.id, i.cost_nanos, i.settled_at, e.hold_nanos, e.counters, a.id AS wallet_id,
               coalesce(a.posted_nanos + a.credit_limit_nanos - a.held_nanos, 0) AS available_nanos,
               a.id IS NOT NULL AND (e.credit_nanos IS NOT NULL OR e.counters IS NOT NULL
                   OR (a.has_credits AND i.cost_nanos > e.hold_nanos)) AS is_special
        FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint, currency text,
                                            cost_nanos bigint, settled_at timestamptz)
        JOIN billing_exchange e ON e.id = i.id AND e.tenant_id = i.tenant_id
        LEFT JOIN billing_account a
            ON a.kind = 'wallet' AND a.tenant_id = i.tenant_id AND a.currency = i.currency
        WHERE NOT EXISTS (SELECT 1 FROM billing_charge c
                          WHERE c.exchange_id = i.id AND c.tenant_id = i.tenant_id)
        ORDER BY a.id, is_special DESC, i.n
    LOOP
        IF item.wallet_id IS DISTINCT FROM wallet THEN
            wallet := item.wallet_id;
            room := item.available_nanos;
        END IF;
        IF item.id = ANY (special) THEN
            CONTINUE;
        END IF;
        IF item.is_special THEN
            resolved := farthing_resolve(item.wallet_id, item.id, item.cost_nanos,
                                         item.hold_nanos, item.counters, item.settled_at);
            special := special || item.id;
            taken := resolved.charge_nanos;
            room := room + resolved.room_nanos;
        ELSE
            taken := least(item.cost_nanos, item.hold_nanos + greatest(room, 0));
            room := room + item.hold_nanos - taken;
        END IF;
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
            input_tokens, cached_input_tokens, cache_write_tokens, image_input_tokens,
            audio_input_tokens, output_tokens, reasoning_tokens, audio_output_tokens, created_at,
            usage_source, outcome, flags, vendor_usage, estimate)
        SELECT i.id, i.tenant_id, d.charge_nanos, d.shortfall_nanos,
            i.input_tokens, i.cached_input_tokens, i.cache_write_tokens,
            coalesce(i.image_input_tokens, 0),
            i.audio_input_tokens, i.output_tokens, i.reasoning_tokens, i.audio_output_tokens,
            i.settled_at, i.usage_source, i.outcome, i.flags, i.vendor_usage, i.estimate
        FROM decided d
        JOIN jsonb_to_recordset(items) AS i(
            n integer, id uuid, tenant_id bigint, input_tokens bigint, cached_input_tokens bigint,
            cache_write_tokens bigint, image_input_tokens bigint, audio_input_tokens bigint,
            output_tokens bigint, reasoning_tokens bigint, audio_output_tokens bigint,
            settled_at timestamptz, usage_source text, outcome text, flags jsonb,
            vendor_usage jsonb, estimate jsonb)
            ON i.n = d.n
        ON CONFLICT DO NOTHING
        RETURNING exchange_id, tenant_id, charge_nanos, shortfall_nanos
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
    ), plain AS (
        SELECT * FROM finished f
        WHERE f.id <> ALL (special) AND (f.charge_nanos > 0 OR f.hold_nanos > 0)
    ), written AS (
        INSERT INTO billing_transfer (link, tenant_id, debit_account_id, credit_account_id,
                                      amount_nanos, phase, code, created_at)
        SELECT f.id, f.tenant_id, w.id, r.id,
               CASE WHEN f.charge_nanos > 0 THEN f.charge_nanos ELSE f.hold_nanos END,
               CASE WHEN f.charge_nanos > 0 THEN 2 ELSE 3 END,
               CASE WHEN f.charge_nanos > 0 THEN 'charge' ELSE 'release' END,
               f.settled_at
        FROM plain f
        JOIN billing_account w ON w.kind = 'wallet' AND w.tenant_id = f.tenant_id
                              AND w.currency = f.currency
        JOIN billing_account r ON r.kind = 'revenue' AND r.tenant_id IS NULL
                              AND r.currency = f.currency
    ), emptied AS (
        DELETE FROM billing_estimatejob j USING charged c WHERE j.exchange_id = c.exchange_id
    ), moved AS (
        UPDATE billing_account a
        SET held_nanos = a.held_nanos - s.hold_nanos,
            posted_nanos = a.posted_nanos - s.charge_nanos
        FROM (SELECT f.tenant_id, f.currency, sum(f.hold_nanos)::bigint AS hold_nanos,
                     sum(f.charge_nanos)::bigint AS charge_nanos
              FROM plain f GROUP BY f.tenant_id, f.currency) s
        WHERE a.kind = 'wallet' AND a.tenant_id = s.tenant_id AND a.currency = s.currency
    )
    SELECT i.n,
           CASE WHEN c.exchange_id IS NOT NULL THEN 'settled'
                WHEN e.id IS NULL THEN 'unknown'
                ELSE 'already' END,
           c.charge_nanos, c.shortfall_nanos
    FROM jsonb_to_recordset(items) AS i(n integer, id uuid, tenant_id bigint)
    LEFT JOIN charged c ON c.exchange_id = i.id
    LEFT JOIN billing_exchange e ON e.id = i.id AND e.tenant_id = i.tenant_id;
END
$$;

-- The exchanges that a limit counts in the period of a moment. An id's time is that of its
-- exchange to within a moment: it finds the partition, created_at decides.
CREATE FUNCTION farthing_counted(of_limit bigint, at_time timestamptz)
RETURNS TABLE (id uuid, tenant_id bigint, state text, hold_nanos bigint)
LANGUAGE sql STABLE AS $$
    SELECT e.id, e.tenant_id, e.state, e.hold_nanos
    FROM billing_spendlimit l
    JOIN billing_account a ON a.id = l.account_id
    CROSS JOIN LATERAL farthing_period(l.period, at_time, l.time_zone) p
    JOIN billing_exchange e
        ON e.tenant_id = a.tenant_id AND e.currency = a.currency AND e.hold_nanos > 0
       AND e.id >= farthing_first_uuid(greatest(p.starts_at - interval '1 minute', 'epoch'))
       AND e.created_at >= p.starts_at
       AND (p.resets_at IS NULL OR e.created_at < p.resets_at)
    WHERE l.id = of_limit
      AND (l.key_id IS NULL OR l.key_id = e.key_id)
      AND (l.user_id IS NULL OR l.user_id = (
          SELECT k.created_by_id FROM keys_apikey k WHERE k.id = e.key_id))
$$;

-- Count a limit's running period from what was charged in it and what is held: for a limit that is
-- new, or whose time zone changed. The caller holds the wallet's lock.
CREATE FUNCTION farthing_count_again(of_limit bigint, at_time timestamptz) RETURNS void
LANGUAGE sql AS $$
    WITH counted AS (
        SELECT * FROM farthing_counted(of_limit, at_time)
    ), kept AS (
        INSERT INTO billing_spendcounter (limit_id, starts_at, posted_nanos, held_nanos,
                                          told_percent)
        SELECT l.id, p.starts_at,
               (SELECT coalesce(sum(g.charge_nanos), 0) FROM counted c
                JOIN billing_charge g ON g.exchange_id = c.id AND g.tenant_id = c.tenant_id),
               (SELECT coalesce(sum(c.hold_nanos), 0) FROM counted c WHERE c.state <> 'settled'),
               0
        FROM billing_spendlimit l
        CROSS JOIN LATERAL farthing_period(l.period, at_time, l.time_zone) p
        WHERE l.id = of_limit
        ON CONFLICT (limit_id, starts_at) DO UPDATE
        SET posted_nanos = excluded.posted_nanos, held_nanos = excluded.held_nanos
        RETURNING id
    )
    UPDATE billing_exchange e SET counters = array_append(e.counters, k.id)
    FROM kept k, counted c
    WHERE e.id = c.id AND e.tenant_id = c.tenant_id AND c.state <> 'settled'
      AND (k.id = ANY (e.counters)) IS NOT TRUE
$$;
