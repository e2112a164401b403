-- Columns of the tables that Django does not manage, and guards of the new ones that it does.
-- Each column is added without touching a row, and the lock it needs is given up soon if a long
-- transaction is in the way: traffic does not queue behind a migration.

SET LOCAL lock_timeout = '2s';

ALTER TABLE billing_exchange
    ADD COLUMN terms_id bigint,      -- the plan's terms whose factor rates it
    ADD COLUMN credit_nanos bigint,  -- what of hold_nanos rests on credits
    ADD COLUMN counters bigint[];    -- the spend counters that count it

ALTER TABLE billing_charge ADD COLUMN image_input_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE billing_charge
    ADD CONSTRAINT image_input_not_negative CHECK (image_input_tokens >= 0) NOT VALID;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_planterms
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_tenantplan
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON billing_credit
    FOR EACH ROW EXECUTE FUNCTION farthing_refuse_change();

-- A code that was redeemed, an adjustment that was decided: neither is ever anything else.
CREATE FUNCTION farthing_keep_decided() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% % is decided: % refused', TG_TABLE_NAME, OLD.id, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER keep_decided BEFORE UPDATE OR DELETE ON billing_redemptioncode
    FOR EACH ROW WHEN (OLD.redeemed_at IS NOT NULL) EXECUTE FUNCTION farthing_keep_decided();
CREATE TRIGGER keep_decided BEFORE UPDATE OR DELETE ON billing_adjustment
    FOR EACH ROW WHEN (OLD.state <> 'proposed') EXECUTE FUNCTION farthing_keep_decided();

CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON billing_planterms
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE OR DELETE ON billing_tenantplan
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
