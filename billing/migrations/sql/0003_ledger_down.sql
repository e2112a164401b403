DROP FUNCTION farthing_refuse(jsonb);
DROP FUNCTION farthing_estimate(jsonb);
DROP FUNCTION farthing_settle(jsonb);
DROP FUNCTION farthing_hold(jsonb);
