-- How leases are renewed and jobs end.

-- Records that groups have no living job left; the caller has changed the jobs before. The locks
-- let one of two calls that end the last jobs of a group see the other's.
CREATE FUNCTION holdfast.tell_drained(
    tenants text[], groups text[], ids text[], queues text[], types text[], attempts integer[],
    fences integer[], now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.drained'), stripe) FROM (
        SELECT DISTINCT hashtext(u.tenant || '/' || u.group_name) & 255 AS stripe
        FROM unnest(tenants, groups) AS u(tenant, group_name)
        WHERE u.group_name IS NOT NULL ORDER BY stripe
    ) s;
    INSERT INTO holdfast.events
    SELECT nextval('holdfast.cursors'), now, 'drained', d.tenant, d.id, d.queue, d.type, d.attempt,
        d.fence, NULL, d.group_name
    FROM (
        SELECT DISTINCT ON (u.tenant, u.group_name) u.*
        FROM unnest(tenants, groups, ids, queues, types, attempts, fences) WITH ORDINALITY
            AS u(tenant, group_name, id, queue, type, attempt, fence, ord)
        WHERE u.group_name IS NOT NULL
        ORDER BY u.tenant, u.group_name, u.ord DESC
    ) d
    WHERE NOT EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.tenant = d.tenant AND j.group_name = d.group_name
    );
END
$$;

-- The lines that may have come up because jobs of these tenants ended; tells other processes.
CREATE FUNCTION holdfast.tell_freed(
    tenants text[], channel text, sender text, OUT t text, OUT q text
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    lines jsonb;
BEGIN
    IF tenants IS NULL
        OR NOT EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = ANY (tenants))
    THEN
        RETURN;
    END IF;
    SELECT jsonb_agg(jsonb_build_array(f.tenant, f.queue)) INTO lines
    FROM holdfast.freed(tenants) f;
    IF channel IS NOT NULL AND lines IS NOT NULL THEN
        PERFORM pg_notify(channel, CASE
            WHEN octet_length(lines::text) < 7900
            THEN jsonb_build_array(sender, lines)::text ELSE '*' END);
    END IF;
    RETURN QUERY SELECT l ->> 0, l ->> 1 FROM jsonb_array_elements(lines) l;
END
$$;

-- Cancels what is not finished. Gives each job's state now, NULL for those not there; and, without
-- a place, the lines that may have come up.
CREATE FUNCTION holdfast.cancel(
    tenants text[], ids text[], given_now bigint, events boolean, channel text, sender text,
    OUT ord integer, OUT state text, OUT tenant text, OUT queue text
) RETURNS SETOF record LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    done record;
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    WITH held AS MATERIALIZED (
        SELECT j.seq FROM holdfast.jobs j
        JOIN (SELECT DISTINCT u.t, u.i FROM unnest(tenants, ids) AS u(t, i)) w
            ON j.tenant = w.t AND j.id = w.i
        ORDER BY j.seq FOR UPDATE OF j
    ), gone AS (
        DELETE FROM holdfast.jobs j WHERE j.seq = ANY (ARRAY(SELECT held.seq FROM held))
        RETURNING j.*
    ), out_of_line AS (
        DELETE FROM holdfast.ready r WHERE r.seq = ANY (ARRAY(SELECT g.seq FROM gone g))
    ), not_due AS (
        DELETE FROM holdfast.due d WHERE d.seq = ANY (ARRAY(SELECT g.seq FROM gone g))
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, expires_at, finished_at, keep_until,
            keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id,
            queue, type, codec, key, group_name, tags, origin, rules, error, progress, payload
        )
        SELECT g.seq, g.priority, g.run_at, g.created_at, now, g.expires_at, now, now + g.keep_us,
            g.keep_us, g.version, g.attempt, g.max_attempts, g.fence, g.lapses, g.misses, g.size,
            'canceled', g.tenant, g.id, g.queue, g.type, g.codec, g.key, g.group_name, g.tags,
            g.origin, g.rules, g.error, g.progress, g.payload
        FROM gone g WHERE g.keep_us > 0
    ), freed AS (
        DELETE FROM holdfast.keys k USING gone g
        WHERE g.key IS NOT NULL AND k.tenant = g.tenant AND k.queue = g.queue AND k.type = g.type
            AND k.key = g.key AND k.id = g.id AND coalesce(k.until, 0) <= now
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'canceled', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence
        FROM (
            SELECT x.* FROM gone x JOIN (
                SELECT u.t, u.i, min(u.n) AS n
                FROM unnest(tenants, ids) WITH ORDINALITY AS u(t, i, n) GROUP BY u.t, u.i
            ) w ON w.t = x.tenant AND w.i = x.id ORDER BY w.n
        ) g WHERE events
    ), told AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, waiting, scheduled, enqueued, processing, retrying,
            canceled, blocked, bytes
        )
        SELECT g.tenant, g.queue, g.group_name, -count(*) FILTER (WHERE g.state = 'waiting'),
            -count(*) FILTER (WHERE g.state = 'scheduled'),
            -count(*) FILTER (WHERE g.state = 'enqueued'),
            -count(*) FILTER (WHERE g.state = 'processing'),
            -count(*) FILTER (WHERE g.state = 'retrying'), count(*) FILTER (WHERE g.keep_us > 0),
            -count(*) FILTER (WHERE g.state = 'enqueued' AND (g.gate = 1 OR g.late = 1)),
            -sum(g.size)
        FROM gone g GROUP BY g.tenant, g.queue, g.group_name
    )
    SELECT array_agg(g.tenant) AS tenants, array_agg(g.queue) AS queues,
        array_agg(g.group_name) AS groups, array_agg(g.id) AS ids, array_agg(g.type) AS types,
        array_agg(g.attempt) AS attempts, array_agg(g.fence) AS fences,
        count(g.group_name) AS grouped
    INTO done FROM gone g;
    IF events AND done.grouped > 0 THEN
        PERFORM holdfast.tell_drained(
            done.tenants, done.groups, done.ids, done.queues, done.types, done.attempts,
            done.fences, now
        );
    END IF;
    -- After the change: a job that ended while we waited for it is in the history by now.
    RETURN QUERY
    SELECT u.n::integer, CASE WHEN d.i IS NOT NULL THEN 'canceled' ELSE (
        SELECT h.state FROM holdfast.history h WHERE h.tenant = u.t AND h.id = u.i LIMIT 1
    ) END, u.t, NULL::text
    FROM unnest(tenants, ids) WITH ORDINALITY AS u(t, i, n)
    LEFT JOIN unnest(done.tenants, done.ids) AS d(t, i) ON d.t = u.t AND d.i = u.i
    UNION ALL
    SELECT NULL, NULL, f.t, f.q FROM holdfast.tell_freed(done.tenants, channel, sender) f;
END
$$;
