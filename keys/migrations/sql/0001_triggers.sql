-- Gateways keep keys in memory. However a row is changed, they hear of it with the commit.

CREATE FUNCTION farthing_notify_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('farthing_keys', OLD.public_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION farthing_notify_tenant() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('farthing_keys', 'tenant:' || OLD.id);
    RETURN NULL;
END
$$;

CREATE TRIGGER tell_gateways AFTER UPDATE OR DELETE ON keys_apikey
    FOR EACH ROW EXECUTE FUNCTION farthing_notify_key();
CREATE TRIGGER tell_gateways AFTER UPDATE OR DELETE ON keys_tenant
    FOR EACH ROW EXECUTE FUNCTION farthing_notify_tenant();

CREATE FUNCTION farthing_keep_trail() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit trail is append-only: % refused', TG_OP
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON keys_auditevent
    FOR EACH ROW EXECUTE FUNCTION farthing_keep_trail();
