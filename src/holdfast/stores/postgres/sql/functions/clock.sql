-- The clock of a step, and the lock of claims.
--
-- Functions on busy paths are PL/pgSQL throughout: a function in plain SQL that cannot be inlined
-- is planned anew at each call. They also fix how they are planned (SET ...), since their tables
-- are empty one moment and full the next, which misleads statistics.

-- The caller's instant, which tests pass in, or else the server's clock, in microseconds.
CREATE OR REPLACE FUNCTION holdfast.now_us(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The instant of a step that has the lock of claims. It is never before that of the step before it,
-- since a clock may be set back, or may have been read before the lock was granted. A clock that
-- goes back by more than ten seconds is believed.
CREATE OR REPLACE FUNCTION holdfast.claim_now_us(given bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now bigint := holdfast.now_us(given);
    last bigint;
BEGIN
    SELECT last_value INTO last FROM holdfast.instants;
    IF last > now AND last - now < 10000000 THEN
        RETURN last;
    END IF;
    IF last > now THEN
        UPDATE holdfast.store_state SET leases_floor = 0, due_floor = 0, claims_floor = 0;
    END IF;
    PERFORM setval('holdfast.instants', now);
    RETURN now;
END
$$;

-- Lets one claim, fold or change of settings run at a time, until its transaction ends.
CREATE OR REPLACE FUNCTION holdfast.lock_claims() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.claims'), 0);
END
$$;
