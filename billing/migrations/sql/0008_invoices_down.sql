DROP TABLE billing_invoiceexchange;
DROP TRIGGER append_only_truncate ON billing_planfee;
DROP TRIGGER append_only_truncate ON billing_invoiceline;
DROP TRIGGER append_only_truncate ON billing_invoice;
DROP TRIGGER keep_decided ON billing_planfee;
DROP TRIGGER keep_line ON billing_invoiceline;
DROP TRIGGER keep_invoice ON billing_invoice;
DROP FUNCTION farthing_keep_claim(), farthing_keep_claims(), farthing_keep_line(),
    farthing_keep_invoice();
CREATE OR REPLACE FUNCTION farthing_make_partitions(months integer) RETURNS integer
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
