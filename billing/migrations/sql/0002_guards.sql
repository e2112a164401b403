-- What is written stays written. Corrections are new rows with a reason.

CREATE FUNCTION farthing_refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_charge
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_price
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_payment
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();

CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_charge
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();

-- An exchange that is settled says for ever what it said.
CREATE FUNCTION farthing_keep_settled() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'exchange % is settled: % refused', OLD.id, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER keep_settled BEFORE UPDATE OR DELETE ON billing_exchange
    FOR EACH ROW WHEN (OLD.state = 'settled') EXECUTE FUNCTION farthing_keep_settled();

-- Gateways keep prices in memory and forget them on this word.
CREATE FUNCTION farthing_notify_catalog() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('farthing_catalog', TG_TABLE_NAME);
    RETURN NULL;
END
$$;

CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON billing_price
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
