-- Sleepers to wake, counts made right, and the parts of the history.

-- The lines that may have come up because something ended, of tenants with settings.
CREATE FUNCTION holdfast.freed(
    tenants text[], OUT tenant text, OUT queue text
) RETURNS SETOF record LANGUAGE sql VOLATILE SET jit = off AS $$
    SELECT c.tenant, c.part FROM holdfast.counts c JOIN holdfast.ruled r ON r.tenant = c.tenant
    WHERE c.kind = 'queue' AND c.tenant = ANY (tenants)
    UNION
    SELECT d.tenant, d.queue FROM holdfast.deltas d JOIN holdfast.ruled r ON r.tenant = d.tenant
    WHERE d.txid >= (SELECT floor FROM holdfast.heads) AND d.queue IS NOT NULL
        AND d.tenant = ANY (tenants)
$$;

-- Counts every job anew; gives by how many held jobs the counts were off. In one statement, so that
-- jobs and counts are those of one instant. The caller has the lock of claims.
CREATE FUNCTION holdfast.recount() RETURNS bigint LANGUAGE sql VOLATILE SET jit = off AS $$
    WITH places AS (
        SELECT tenant, queue, group_name, state, count(*) AS number, sum(size) AS bytes,
            count(*) FILTER (WHERE state = 'enqueued' AND (gate = 1 OR late = 1)) AS blocked
        FROM holdfast.jobs GROUP BY tenant, queue, group_name, state
        UNION ALL
        SELECT tenant, queue, group_name, state, count(*), 0, 0
        FROM holdfast.history GROUP BY tenant, queue, group_name, state
    ), moves AS (
        SELECT tenant, queue, group_name,
            CASE WHEN state = 'waiting' THEN number ELSE 0 END AS waiting,
            CASE WHEN state = 'scheduled' THEN number ELSE 0 END AS scheduled,
            CASE WHEN state = 'enqueued' THEN number ELSE 0 END AS enqueued,
            CASE WHEN state = 'processing' THEN number ELSE 0 END AS processing,
            CASE WHEN state = 'retrying' THEN number ELSE 0 END AS retrying,
            CASE WHEN state = 'completed' THEN number ELSE 0 END AS completed,
            CASE WHEN state = 'failed' THEN number ELSE 0 END AS failed,
            CASE WHEN state = 'canceled' THEN number ELSE 0 END AS canceled, bytes, blocked
        FROM places
        UNION ALL
        SELECT tenant, queue, group_name, -waiting, -scheduled, -enqueued, -processing, -retrying,
            -completed, -failed, -canceled, -bytes, -blocked
        FROM holdfast.deltas WHERE queue IS NOT NULL
    ), scoped AS (
        SELECT 'queue' AS kind, tenant, queue AS part, waiting, scheduled, enqueued, processing,
            retrying, completed, failed, canceled, 0 AS bytes, blocked FROM moves
        UNION ALL
        SELECT 'tenant', tenant, '', waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, 0 FROM moves
        UNION ALL
        SELECT 'group', tenant, group_name, waiting, scheduled, enqueued, processing, retrying,
            completed, failed, canceled, 0, 0 FROM moves WHERE group_name IS NOT NULL
        UNION ALL
        SELECT kind, tenant, part, -waiting, -scheduled, -enqueued, -processing, -retrying,
            -completed, -failed, -canceled, -bytes, -blocked FROM holdfast.counts
    ), wrong AS (
        SELECT kind, tenant, part, sum(waiting) AS waiting, sum(scheduled) AS scheduled,
            sum(enqueued) AS enqueued, sum(processing) AS processing, sum(retrying) AS retrying,
            sum(completed) AS completed, sum(failed) AS failed, sum(canceled) AS canceled,
            sum(bytes) AS bytes, sum(blocked) AS blocked
        FROM scoped GROUP BY kind, tenant, part
        HAVING (sum(waiting), sum(scheduled), sum(enqueued), sum(processing), sum(retrying),
                sum(completed), sum(failed), sum(canceled), sum(bytes), sum(blocked))
            <> (0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    ), mended AS (
        INSERT INTO holdfast.counts AS c (
            kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, turn
        )
        SELECT kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, nextval('holdfast.turns') FROM wrong
        ON CONFLICT (kind, tenant, part) DO UPDATE SET
            waiting = c.waiting + excluded.waiting, scheduled = c.scheduled + excluded.scheduled,
            enqueued = c.enqueued + excluded.enqueued,
            processing = c.processing + excluded.processing,
            retrying = c.retrying + excluded.retrying,
            completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
            canceled = c.canceled + excluded.canceled, bytes = c.bytes + excluded.bytes,
            blocked = c.blocked + excluded.blocked
    ), touched AS (
        INSERT INTO holdfast.deltas (tenant)
        SELECT DISTINCT w.tenant FROM wrong w JOIN holdfast.ruled r ON r.tenant = w.tenant
    )
    SELECT coalesce(sum(abs(processing)) FILTER (WHERE kind = 'queue'), 0)::bigint FROM wrong
$$;

-- Whether a day of the history could be locked; who waits for us meanwhile does not wait for long.
-- `writers` keeps those who change it out until the transaction ends, `all` readers too, and `probe`
-- only tells whether `all` would work.
CREATE FUNCTION holdfast.lock_day(day integer, whom text) RETURNS boolean LANGUAGE plpgsql
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

-- Whether an ended job of these tenants has an id between the lowest and the highest of these. One
-- look into each part of the history, where asking for each id would be one for every job. Ids that
-- were made, not chosen, grow with time: between those of one call there is hardly ever another.
CREATE FUNCTION holdfast.ended_between(tenants text[], ids text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT u.tenant, min(u.id COLLATE "C") AS low, max(u.id COLLATE "C") AS high
            FROM unnest(tenants, ids) AS u(tenant, id) GROUP BY u.tenant
        ) asked
        JOIN holdfast.history h ON h.tenant = asked.tenant AND h.id BETWEEN asked.low AND asked.high
    );
END
$$;
