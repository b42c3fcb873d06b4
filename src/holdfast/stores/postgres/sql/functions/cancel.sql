-- Cancel.

-- Cancels jobs that have not ended. Returns the state of each job now, NULL for those that do not
-- exist; and rows without an ord for the lines that may have come up, and for tenants with edges to
-- follow.
CREATE OR REPLACE FUNCTION holdfast.cancel(
    tenants text[], ids text[], given_now bigint, events boolean, channel text, sender text,
    by_whom text, OUT ord integer, OUT state text, OUT tenant text, OUT queue text
) RETURNS SETOF record LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
    done holdfast.ended[];
    of_tenants text[];
    of_ids text[];
BEGIN
    done := holdfast.cancel_jobs(tenants, ids, now, events, by_whom);
    SELECT array_agg(d.tenant), array_agg(d.id) INTO of_tenants, of_ids FROM unnest(done) d;
    IF events AND EXISTS (SELECT FROM unnest(done) d WHERE d.group_name IS NOT NULL) THEN
        PERFORM holdfast.record_drained_groups(
            ARRAY(SELECT d FROM unnest(done) d WHERE d.group_name IS NOT NULL), now
        );
    END IF;
    PERFORM holdfast.notify_ended_jobs(of_tenants, of_ids, channel, sender);
    -- After the change: a job that ended while we waited for it is in the history by now.
    RETURN QUERY
    SELECT u.n::integer, CASE WHEN d.i IS NOT NULL THEN 'canceled' ELSE (
        SELECT h.state FROM holdfast.history h WHERE h.tenant = u.t AND h.id = u.i LIMIT 1
    ) END, u.t, NULL::text
    FROM unnest(tenants, ids) WITH ORDINALITY AS u(t, i, n)
    LEFT JOIN unnest(of_tenants, of_ids) AS d(t, i) ON d.t = u.t AND d.i = u.i
    UNION ALL
    SELECT NULL, NULL, f.t, f.q FROM holdfast.notify_freed_lines(of_tenants, channel, sender) f
    UNION ALL
    -- Others may await jobs of this tenant that have ended here, or just before.
    SELECT NULL, 'awaited', d.t, NULL FROM (SELECT DISTINCT unnest(of_tenants) AS t) d
    WHERE EXISTS (SELECT FROM holdfast.releasing r WHERE r.tenant = d.t);
END
$$;

-- Moves the living ones of these jobs to the history as canceled, or deletes them if nothing is
-- kept. Returns them.
CREATE OR REPLACE FUNCTION holdfast.cancel_jobs(
    tenants text[], ids text[], now bigint, events boolean, by_whom text
) RETURNS holdfast.ended[] LANGUAGE plpgsql AS $$
DECLARE
    done holdfast.ended[];
BEGIN
    PERFORM holdfast.announce();
    -- Each job and key is looked up by itself: a join could read those of all tenants.
    WITH named AS MATERIALIZED (
        SELECT found.seq, w.n FROM (
            SELECT u.t, u.i, min(u.n) AS n
            FROM unnest(tenants, ids) WITH ORDINALITY AS u(t, i, n) GROUP BY u.t, u.i
        ) w CROSS JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j WHERE j.tenant = w.t AND j.id = w.i LIMIT 1
        ) found ORDER BY found.seq
    ), held AS MATERIALIZED (
        SELECT locked.seq, named.n FROM named CROSS JOIN LATERAL (
            SELECT j.seq FROM holdfast.jobs j WHERE j.seq = named.seq FOR UPDATE
        ) locked
    ), gone AS (
        DELETE FROM holdfast.jobs j WHERE j.seq = ANY (ARRAY(SELECT held.seq FROM held))
        RETURNING j.*
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, expires_at, finished_at, keep_until,
            keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant,
            id, queue, type, codec, key, group_name, tags, origin, rules, error, progress, payload,
            journal, edges, parents
        )
        SELECT g.seq, g.priority, g.run_at, g.created_at, now, g.expires_at, now, now + g.keep_us,
            g.keep_us, g.version, g.attempt, g.max_attempts, g.fence, g.lapses, g.misses, g.size,
            'canceled', g.tenant, g.id, g.queue, g.type, g.codec, g.key, g.group_name, g.tags,
            g.origin, g.rules, g.error, g.progress, g.payload, g.journal, g.edges, g.parents
        FROM gone g WHERE g.keep_us > 0 OR g.edges IS NOT NULL
    ), awaited AS (
        INSERT INTO holdfast.releasing (seq, part, tenant, id, state, edges)
        SELECT g.seq, p.part, g.tenant, g.id, 'canceled', p.edges
        FROM gone g CROSS JOIN LATERAL holdfast.edge_parts(g.edges) p WHERE g.edges IS NOT NULL
    ), forgotten AS (
        INSERT INTO holdfast.leftovers SELECT g.seq FROM gone g
        WHERE g.journal IS NOT NULL AND g.keep_us <= 0 AND g.edges IS NULL
    ), freed AS (
        DELETE FROM holdfast.keys k WHERE k.ctid = ANY (ARRAY(
            SELECT found.ctid FROM gone g CROSS JOIN LATERAL (
                SELECT x.ctid FROM holdfast.keys x
                WHERE x.tenant = g.tenant AND x.queue = g.queue AND x.type = g.type
                    AND x.key = g.key AND x.id = g.id AND coalesce(x.until, 0) <= now LIMIT 1
            ) found WHERE g.key IS NOT NULL
        ))
    ), recorded AS (
        INSERT INTO holdfast.events (
            cursor, at, kind, tenant, job_id, queue, type, attempt, fence, signed
        )
        SELECT nextval('holdfast.cursors'), now, 'canceled', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence, by_whom
        FROM (SELECT x.* FROM gone x JOIN held h ON h.seq = x.seq ORDER BY h.n) g WHERE events
    ), counted AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, type, waiting, scheduled, enqueued, processing, retrying,
            canceled, blocked, bytes
        )
        SELECT g.tenant, g.queue, g.group_name, g.held_type,
            -count(*) FILTER (WHERE g.state = 'waiting'),
            -count(*) FILTER (WHERE g.state = 'scheduled'),
            -count(*) FILTER (WHERE g.state = 'enqueued'),
            -count(*) FILTER (WHERE g.state = 'processing'),
            -count(*) FILTER (WHERE g.state = 'retrying'),
            count(*) FILTER (WHERE g.keep_us > 0 OR g.edges IS NOT NULL),
            -count(*) FILTER (WHERE g.state = 'enqueued' AND (g.gate IN (1, 3) OR g.late = 1)),
            -sum(g.size)
        FROM (
            SELECT x.*, CASE WHEN x.state = 'processing' THEN x.type END AS held_type FROM gone x
        ) g GROUP BY g.tenant, g.queue, g.group_name, g.held_type
    )
    SELECT array_agg(
        (g.tenant, g.group_name, g.id, g.queue, g.type, g.attempt, g.fence)::holdfast.ended
    ) INTO done FROM gone g;
    RETURN done;
END
$$;
