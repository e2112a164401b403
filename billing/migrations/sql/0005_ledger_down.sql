-- What stood before is put back by running 0003_ledger.sql again.
DROP FUNCTION farthing_count_again(bigint, timestamptz), farthing_counted(bigint, timestamptz);
DROP FUNCTION farthing_extend(jsonb), farthing_settle(jsonb), farthing_hold(jsonb);
DROP FUNCTION farthing_resolve(bigint, uuid, bigint, bigint, bigint[], timestamptz);
DROP FUNCTION farthing_reserve(bigint, uuid, bigint, bigint, timestamptz);
DROP FUNCTION farthing_pend(bigint, uuid, bigint, timestamptz);
DROP FUNCTION farthing_sources(bigint, timestamptz);
DROP FUNCTION farthing_counter_passed(bigint[], timestamptz, bigint);
DROP FUNCTION farthing_limit_passed(bigint, bigint, timestamptz, bigint);
DROP FUNCTION farthing_limits(bigint, bigint, timestamptz);
DROP FUNCTION farthing_period(text, timestamptz, text);
DROP FUNCTION farthing_estimate(jsonb), farthing_refuse(jsonb);
