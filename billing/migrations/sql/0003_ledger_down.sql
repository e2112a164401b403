DROP FUNCTION farthing_settle(jsonb);
DROP FUNCTION farthing_hold(jsonb);
