-- What was said is kept for days: one partition a day, so that content leaves by dropping them.

CREATE TABLE gateway_transcript (
    exchange_id    uuid   NOT NULL,
    tenant_id      bigint NOT NULL,
    legs           jsonb  NOT NULL DEFAULT '{}',
    summary        jsonb,
    client_request bytea,
    vendor_answer  bytea,
    client_answer  bytea,
    PRIMARY KEY (exchange_id, tenant_id)
) PARTITION BY RANGE (exchange_id);

-- Bodies arrive compressed; PostgreSQL need not try again.
ALTER TABLE gateway_transcript ALTER COLUMN client_request SET STORAGE EXTERNAL;
ALTER TABLE gateway_transcript ALTER COLUMN vendor_answer SET STORAGE EXTERNAL;

CREATE FUNCTION farthing_make_transcript_partitions(days integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    day   timestamptz;
    child text;
    made  integer := 0;
BEGIN
    FOR day IN
        SELECT generate_series(date_trunc('day', now(), 'UTC') - interval '1 day',
                               date_trunc('day', now(), 'UTC') + make_interval(days => days),
                               interval '1 day', 'UTC')
    LOOP
        child := 'gateway_transcript' || to_char(day AT TIME ZONE 'UTC', '"_y"YYYY"m"MM"d"DD');
        CONTINUE WHEN to_regclass(child) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I PARTITION OF gateway_transcript FOR VALUES FROM (%L) TO (%L)',
                       child, farthing_first_uuid(day),
                       farthing_first_uuid(date_add(day, interval '1 day', 'UTC')));
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;

CREATE TABLE gateway_transcript_other PARTITION OF gateway_transcript DEFAULT;
SELECT farthing_make_transcript_partitions(7);

-- Gateways keep the catalog in memory and forget it on this word.
CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON gateway_vendor
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON gateway_model
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON gateway_route
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
