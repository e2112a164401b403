DROP TRIGGER tell_gateways ON billing_countcorrection;
DROP TRIGGER append_only_truncate ON billing_countcorrection;
DROP TRIGGER keep_correction ON billing_countcorrection;
DROP FUNCTION farthing_keep_correction();
