-- Upkeep.

-- True when a day of the history could be locked within 100 ms. 'writers' blocks changes until the
-- transaction ends, 'all' readers too; 'probe' only tells whether 'all' would work.
CREATE OR REPLACE FUNCTION holdfast.lock_history_day(day integer, whom text)
RETURNS boolean LANGUAGE plpgsql
SET lock_timeout = '100ms' AS $$
BEGIN
    EXECUTE format(
        'LOCK TABLE holdfast.%I IN %s MODE', 'history_' || day,
        CASE whom WHEN 'writers' THEN 'SHARE ROW EXCLUSIVE' ELSE 'ACCESS EXCLUSIVE' END
    );
    IF whom = 'probe' THEN
        RAISE SQLSTATE 'HFDAY';  -- What the block did is undone: the lock is given back.
    END IF;
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'HFDAY' THEN
        RETURN true;
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN false;
END
$$;

-- Notes which tenants have as many queues or groups as they may, by counts that were just folded.
CREATE OR REPLACE FUNCTION holdfast.find_full_tenants(queues_max bigint, groups_max bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.full_tenants;
    INSERT INTO holdfast.full_tenants
    SELECT c.tenant, CASE WHEN c.queues >= queues_max THEN queues_max END,
        CASE WHEN c.groups >= groups_max THEN groups_max END
    FROM holdfast.counts c
    WHERE c.kind = 'tenant' AND (c.queues >= queues_max OR c.groups >= groups_max);
END
$$;
