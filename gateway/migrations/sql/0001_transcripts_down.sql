DROP TRIGGER tell_gateways ON gateway_route;
DROP TRIGGER tell_gateways ON gateway_model;
DROP TRIGGER tell_gateways ON gateway_vendor;
DROP TABLE gateway_transcript;
DROP FUNCTION farthing_make_transcript_partitions(integer);
