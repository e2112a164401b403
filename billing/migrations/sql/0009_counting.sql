-- What was decided of a correction says for ever what it said; a proposal is decided once.

SET LOCAL lock_timeout = '2s';

CREATE FUNCTION farthing_keep_correction() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    deciding text[] := ARRAY['state', 'decided_at'];
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.state = 'proposed' AND NEW.state <> 'proposed'
            AND to_jsonb(OLD) - deciding = to_jsonb(NEW) - deciding THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'correction % is %: % refused', OLD.id, OLD.state, TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER keep_correction BEFORE UPDATE OR DELETE ON billing_countcorrection
    FOR EACH ROW EXECUTE FUNCTION farthing_keep_correction();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON billing_countcorrection
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_refuse_change();

-- Gateways bound prompts by it.
CREATE TRIGGER tell_gateways AFTER INSERT OR UPDATE ON billing_countcorrection
    FOR EACH STATEMENT EXECUTE FUNCTION farthing_notify_catalog();
