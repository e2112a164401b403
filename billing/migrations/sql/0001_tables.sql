-- The tables that grow: partitioned by month over UUIDv7 ids, tenant_id in every key.
-- fillfactor leaves room for the one update of an exchange, so that it stays on its page (HOT).

CREATE TABLE billing_exchange (
    id                uuid        NOT NULL,
    tenant_id         bigint      NOT NULL,
    key_id            bigint      NOT NULL,
    process_id        bigint      NOT NULL,
    price_id          bigint,
    hold_nanos        bigint      NOT NULL DEFAULT 0 CHECK (hold_nanos >= 0),
    created_at        timestamptz NOT NULL,
    ended_at          timestamptz,
    settled_at        timestamptz,
    first_byte_ms     integer,
    duration_ms       integer,
    status_code       smallint,
    is_test           boolean     NOT NULL DEFAULT false,
    is_stream         boolean     NOT NULL DEFAULT false,
    state             text        NOT NULL DEFAULT 'open'
                                  CHECK (state IN ('open', 'estimating', 'settled')),
    currency          text        NOT NULL,
    model             text        NOT NULL,
    error_code        text,
    finish_reason     text,
    client_request_id text,
    attempts          jsonb       NOT NULL DEFAULT '[]',
    message           jsonb,
    PRIMARY KEY (id, tenant_id)
) PARTITION BY RANGE (id);

CREATE INDEX billing_exchange_tenant ON billing_exchange (tenant_id, id DESC);
CREATE INDEX billing_exchange_unsettled ON billing_exchange (process_id) WHERE state <> 'settled';

CREATE TABLE billing_charge (
    exchange_id         uuid        NOT NULL,
    tenant_id           bigint      NOT NULL,
    charge_nanos        bigint      NOT NULL CHECK (charge_nanos >= 0),
    shortfall_nanos     bigint      NOT NULL DEFAULT 0 CHECK (shortfall_nanos >= 0),
    input_tokens        bigint      NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
    cached_input_tokens bigint      NOT NULL DEFAULT 0 CHECK (cached_input_tokens >= 0),
    cache_write_tokens  bigint      NOT NULL DEFAULT 0 CHECK (cache_write_tokens >= 0),
    output_tokens       bigint      NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
    reasoning_tokens    bigint      NOT NULL DEFAULT 0 CHECK (reasoning_tokens >= 0),
    audio_input_tokens  bigint      NOT NULL DEFAULT 0 CHECK (audio_input_tokens >= 0),
    audio_output_tokens bigint      NOT NULL DEFAULT 0 CHECK (audio_output_tokens >= 0),
    created_at          timestamptz NOT NULL,
    usage_source        text        NOT NULL CHECK (usage_source IN ('vendor', 'estimate', 'none')),
    outcome             text        NOT NULL,
    flags               jsonb,
    vendor_usage        jsonb,
    estimate            jsonb,
    -- The rule "an exchange is resolved once" is this key.
    PRIMARY KEY (exchange_id, tenant_id)
) PARTITION BY RANGE (exchange_id);

CREATE TABLE billing_transfer (
    id                bigint      GENERATED ALWAYS AS IDENTITY,
    link              uuid        NOT NULL,
    tenant_id         bigint      NOT NULL,
    debit_account_id  bigint      NOT NULL,
    credit_account_id bigint      NOT NULL CHECK (credit_account_id <> debit_account_id),
    amount_nanos      bigint      NOT NULL CHECK (amount_nanos > 0),
    phase             smallint    NOT NULL CHECK (phase BETWEEN 0 AND 3),
    code              text        NOT NULL,
    created_at        timestamptz NOT NULL,
    reason            text,
    PRIMARY KEY (link, id, tenant_id)
) PARTITION BY RANGE (link);

-- "A hold is posted or voided, once": one index, no if.
CREATE UNIQUE INDEX billing_transfer_resolved_once
    ON billing_transfer (link, tenant_id) WHERE phase IN (2, 3);
CREATE INDEX billing_transfer_tenant ON billing_transfer (tenant_id, link DESC);

-- One partition a month and table. The bounds are the smallest UUIDv7 of a month: its first 48
-- bits are the milliseconds since 1970.
CREATE FUNCTION farthing_first_uuid(moment timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0')
            || '00000000000000000000')::uuid
$$;

CREATE FUNCTION farthing_make_partitions(months integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    month  timestamptz;
    child  text;
    made   integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['billing_exchange', 'billing_charge', 'billing_transfer'] LOOP
        FOR month IN
            SELECT generate_series(
                date_trunc('month', now(), 'UTC') - interval '1 month',
                date_trunc('month', now(), 'UTC') + make_interval(months => months),
                interval '1 month', 'UTC')
        LOOP
            child := parent || to_char(month AT TIME ZONE 'UTC', '"_y"YYYY"m"MM');
            CONTINUE WHEN to_regclass(child) IS NOT NULL;
            EXECUTE format(
                'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)%s',
                child, parent, farthing_first_uuid(month),
                farthing_first_uuid(date_add(month, interval '1 month', 'UTC')),
                CASE parent WHEN 'billing_exchange' THEN ' WITH (fillfactor = 85)' ELSE '' END);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

-- What no month takes (a clock that is years off) is kept rather than lost.
CREATE TABLE billing_exchange_other PARTITION OF billing_exchange DEFAULT;
CREATE TABLE billing_charge_other PARTITION OF billing_charge DEFAULT;
CREATE TABLE billing_transfer_other PARTITION OF billing_transfer DEFAULT;

SELECT farthing_make_partitions(3);
