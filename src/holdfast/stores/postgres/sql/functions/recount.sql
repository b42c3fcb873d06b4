-- Counting every job anew, which an operator asks for.

-- Counts every job anew and corrects the counts; returns by how many leased jobs they were off. One
-- statement, so that jobs and counts are of one snapshot. The caller has the lock of claims.
CREATE OR REPLACE FUNCTION holdfast.recount() RETURNS bigint
LANGUAGE sql VOLATILE SET jit = off AS $$
    WITH places AS (
        SELECT tenant, queue, group_name, state, count(*) AS number, sum(size) AS bytes,
            count(*) FILTER (WHERE state = 'enqueued' AND (gate IN (1, 3) OR late = 1)) AS blocked
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
            failed, canceled, bytes, blocked, nextval('holdfast.cursors') FROM wrong
        ON CONFLICT (kind, tenant, part) DO UPDATE SET
            waiting = c.waiting + excluded.waiting, scheduled = c.scheduled + excluded.scheduled,
            enqueued = c.enqueued + excluded.enqueued,
            processing = c.processing + excluded.processing,
            retrying = c.retrying + excluded.retrying,
            completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
            canceled = c.canceled + excluded.canceled, bytes = c.bytes + excluded.bytes,
            blocked = c.blocked + excluded.blocked
    ), touched AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name)
        SELECT w.tenant, CASE w.kind WHEN 'queue' THEN w.part END,
            CASE w.kind WHEN 'group' THEN w.part END
        FROM wrong w, holdfast.store_state h
        WHERE h.tiered
            OR EXISTS (SELECT FROM holdfast.tenants_with_settings r WHERE r.tenant = w.tenant)
    )
    SELECT coalesce(sum(abs(processing)) FILTER (WHERE kind = 'queue'), 0)::bigint FROM wrong
$$;

-- Counts the lines, queues and groups of every tenant anew.
CREATE OR REPLACE FUNCTION holdfast.recount_lines() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.counts t SET lines = f.lines, queues = f.queues, groups = f.groups
    FROM (
        SELECT c.tenant, count(*) FILTER (WHERE c.kind = 'queue' AND c.open
            AND c.enqueued > c.blocked)
                AS lines,
            count(*) FILTER (WHERE c.kind = 'queue') AS queues,
            count(*) FILTER (WHERE c.kind = 'group') AS groups
        FROM holdfast.counts c GROUP BY c.tenant
    ) f
    WHERE t.kind = 'tenant' AND t.tenant = f.tenant
        AND (t.lines, t.queues, t.groups) <> (f.lines, f.queues, f.groups);
END
$$;
