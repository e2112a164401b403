DROP TABLE billing_transfer, billing_charge, billing_exchange;
DROP FUNCTION farthing_make_partitions(integer), farthing_first_uuid(timestamptz);
