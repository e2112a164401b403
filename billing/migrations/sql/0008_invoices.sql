-- Which exchange is on which invoice, and what keeps an invoice what it is.

SET LOCAL lock_timeout = '2s';

-- Settled exchanges and charges are never touched again, so that they are on an invoice is told by
-- a row of its own, partitioned as they are. `part` numbers the model and price within the invoice.
CREATE TABLE billing_invoiceexchange (
    exchange_id uuid    NOT NULL,
    tenant_id   bigint  NOT NULL,
    invoice_id  bigint  NOT NULL,
    part        integer NOT NULL,
    is_released boolean NOT NULL DEFAULT false
) PARTITION BY RANGE (exchange_id);

-- The rule "an exchange is on one invoice" is this index. A void invoice releases its exchanges.
CREATE UNIQUE INDEX billing_invoiceexchange_once
    ON billing_invoiceexchange (exchange_id, tenant_id) WHERE NOT is_released;
CREATE INDEX billing_invoiceexchange_part
    ON billing_invoiceexchange (invoice_id, part, exchange_id);
CREATE INDEX billing_invoiceexchange_released
    ON billing_invoiceexchange (tenant_id, exchange_id) WHERE is_released;

CREATE TABLE billing_invoiceexchange_other PARTITION OF billing_invoiceexchange DEFAULT;

-- As in 0001_tables.sql, and for the new table.
CREATE OR REPLACE FUNCTION farthing_make_partitions(months integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    month  timestamptz;
    child  text;
    made   integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['billing_exchange', 'billing_charge', 'billing_transfer',
                                  'billing_invoiceexchange'] LOOP
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

SELECT farthing_make_partitions(3);

-- The moves that billing.invoices.transitions allows, and nothing else: a draft's own content may
-- still change, from then on only the state does, and the number comes with the issue.
CREATE FUNCTION farthing_keep_invoice() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    moving  text[] := ARRAY['state', 'state_at'];
    allowed boolean := false;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF OLD.state = 'draft' AND NEW.state = 'draft' THEN
            RETURN NEW;
        END IF;
        IF OLD.state = 'review' AND NEW.state = 'issued' THEN
            moving := moving || ARRAY['series', 'number', 'issued_at'];
        END IF;
        allowed := (OLD.state, NEW.state) IN (
                ('draft', 'review'), ('draft', 'void'), ('review', 'draft'), ('review', 'issued'),
                ('review', 'void'), ('issued', 'paid'), ('issued', 'void'))
            AND to_jsonb(OLD) - moving = to_jsonb(NEW) - moving;
    END IF;
    IF NOT allowed THEN
        RAISE EXCEPTION 'invoice % is %: % refused', OLD.id, OLD.state, TG_OP
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER keep_invoice BEFORE UPDATE OR DELETE ON billing_invoice
    FOR EACH ROW EXECUTE FUNCTION farthing_keep_invoice();

-- Lines are written with their draft. The lock keeps the draft from being sent on meanwhile.
CREATE FUNCTION farthing_keep_line() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    broken bigint;
BEGIN
    PERFORM FROM billing_invoice i
    WHERE i.id IN (OLD.invoice_id, NEW.invoice_id) FOR SHARE;
    SELECT i.id INTO broken FROM billing_invoice i
    WHERE i.id IN (OLD.invoice_id, NEW.invoice_id) AND i.state <> 'draft';
    IF FOUND THEN
        RAISE EXCEPTION 'invoice % is no draft: % of a line refused', broken, TG_OP
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;

CREATE TRIGGER keep_line BEFORE INSERT OR UPDATE OR DELETE ON billing_invoiceline
    FOR EACH ROW EXECUTE FUNCTION farthing_keep_line();

-- Exchanges come with a draft, a statement at a time since there are a million of them.
CREATE FUNCTION farthing_keep_claims() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT invoice_id FROM added) a
        LEFT JOIN billing_invoice i ON i.id = a.invoice_id AND i.state = 'draft'
        WHERE i.id IS NULL)
    THEN
        RAISE EXCEPTION 'an invoice that is no draft takes no exchange'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER keep_claims AFTER INSERT ON billing_invoiceexchange
    REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_keep_claims();

-- They leave a void one, once, and nothing else of them changes.
CREATE FUNCTION farthing_keep_claim() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NOT OLD.is_released AND NEW.is_released
       AND (OLD.exchange_id, OLD.tenant_id, OLD.invoice_id, OLD.part)
           = (NEW.exchange_id, NEW.tenant_id, NEW.invoice_id, NEW.part)
       AND EXISTS (SELECT FROM billing_invoice i
                   WHERE i.id = OLD.invoice_id AND i.state = 'void')
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'exchange % is on invoice %: % refused', OLD.exchange_id, OLD.invoice_id, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER keep_claim BEFORE UPDATE OR DELETE ON billing_invoiceexchange
    FOR EACH ROW EXECUTE FUNCTION farthing_keep_claim();

-- A fee that was charged is never anything else.
CREATE TRIGGER keep_decided BEFORE UPDATE OR DELETE ON billing_planfee
    FOR EACH ROW WHEN (OLD.charged_at IS NOT NULL) EXECUTE FUNCTION farthing_keep_decided();

CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_invoice
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_invoiceline
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_invoiceexchange
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_planfee
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();
