-- Cursors of events and deltas: which of them are committed.

-- Must be called before a transaction draws its first cursor, for an event or a delta. The shared
-- lock has the last cursor drawn so far as its number: it tells readers that cursors after it may
-- still be uncommitted, since transactions commit in another order than they draw cursors.
CREATE OR REPLACE FUNCTION holdfast.announce() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    own text := 'holdfast.' || pg_current_xact_id()::text;
BEGIN
    IF current_setting('holdfast_log.announced', true) IS DISTINCT FROM own THEN
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('holdfast.events'),
            CASE WHEN is_called THEN (last_value & 2147483647)::integer ELSE 0 END
        ), set_config('holdfast_log.announced', own, true) FROM holdfast.cursors;
    END IF;
END
$$;

-- The cursor up to which everything is committed, rolled back or never drawn. The head is read
-- before the locks: a transaction that has no lock yet draws higher cursors.
CREATE OR REPLACE FUNCTION holdfast.horizon() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    lowest bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO head FROM holdfast.cursors;
    SELECT min(head - ((head - objid::bigint) & 2147483647)) INTO lowest FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock' AND granted
        AND classid::bigint = (hashtext('holdfast.events')::bigint & 4294967295)
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN greatest(least(head, lowest), 0);
END
$$;
