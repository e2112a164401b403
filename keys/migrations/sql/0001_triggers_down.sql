DROP TRIGGER append_only ON keys_auditevent;
DROP TRIGGER tell_gateways ON keys_tenant;
DROP TRIGGER tell_gateways ON keys_apikey;
DROP FUNCTION farthing_keep_trail(), farthing_notify_tenant(), farthing_notify_key();
