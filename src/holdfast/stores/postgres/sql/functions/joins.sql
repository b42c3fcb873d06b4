-- Joins: what completed jobs do for those that await them. Python's rules (joins.py) do the rest.

-- The edges of a job in parts, as `releasing` has them.
CREATE OR REPLACE FUNCTION holdfast.edge_parts(
    all_edges text[], OUT part integer, OUT edges text[]
) RETURNS SETOF record LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF cardinality(all_edges) > 50 THEN
        RETURN QUERY SELECT ((u.n - 1) / 50)::integer, array_agg(u.edge ORDER BY u.n)
        FROM unnest(all_edges) WITH ORDINALITY AS u(edge, n) GROUP BY 1;
        RETURN;
    END IF;
    part := 0;
    edges := all_edges;
    RETURN NEXT;
END
$$;

-- Follows the edges of jobs that this transaction has completed: up to `most` of those that lead to
-- jobs that await their parents. The others it notes, also where somebody else holds the target:
-- it never waits. Returns the tenants with noted edges, lines with jobs that are ready now, and
-- jobs that have ended with their parents.
CREATE OR REPLACE FUNCTION holdfast.follow_completed(
    parents holdfast.parent[], most integer, now bigint, events boolean,
    OUT noted text[], OUT lines jsonb, OUT ended_tenants text[], OUT ended_ids text[]
) LANGUAGE plpgsql AS $$
DECLARE
    told record;
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT p.seq, p.tenant, p.id, e.edge, split_part(e.edge, E'\x1f', 1) AS target,
            split_part(e.edge, E'\x1f', 2) = '' AND row_number() OVER () <= most AS is_asked
        FROM unnest(parents) p CROSS JOIN LATERAL unnest(p.edges) AS e(edge)
    ), met AS MATERIALIZED (
        SELECT a.*, j.seq AS met_seq, j.group_name IS NOT NULL AS is_grouped,
            -- How jobs end that others see besides is for Python's rules.
            j.late = 0 AND (j.awaits IS DISTINCT FROM 'parents:'
                OR j.group_name IS NULL AND j.key IS NULL AND j.edges IS NULL) AS is_done
        FROM asked a LEFT JOIN LATERAL (
            SELECT x.seq, x.late, x.awaits, x.group_name, x.key, x.edges FROM holdfast.jobs x
            WHERE x.tenant = a.tenant AND x.id = a.target LIMIT 1 FOR UPDATE SKIP LOCKED
        ) j ON a.is_asked
    ), left_over AS (
        INSERT INTO holdfast.releasing (seq, part, tenant, id, state, edges)
        SELECT m.seq, p.part, m.tenant, m.id, 'completed', p.edges
        FROM (
            SELECT x.seq, x.tenant, x.id, array_agg(x.edge) AS edges FROM met x
            WHERE NOT x.is_asked OR x.met_seq IS NOT NULL AND NOT x.is_done
                OR x.met_seq IS NULL AND EXISTS (
                    SELECT FROM holdfast.jobs o WHERE o.tenant = x.tenant AND o.id = x.target
                )
            GROUP BY x.seq, x.tenant, x.id
        ) m CROSS JOIN LATERAL holdfast.edge_parts(m.edges) p
        RETURNING tenant
    )
    SELECT array_agg(m.met_seq) AS seqs, (SELECT array_agg(DISTINCT l.tenant) FROM left_over l)
        AS noted, array_agg(DISTINCT m.tenant) FILTER (WHERE m.is_grouped) AS grouped
    INTO told FROM met m WHERE m.met_seq IS NOT NULL AND m.is_done;
    noted := told.noted;
    IF told.seqs IS NULL THEN
        RETURN;
    END IF;
    IF told.grouped IS NOT NULL THEN
        SELECT array_agg(s.tenant) INTO told.grouped
        FROM holdfast.settings_of_tenants(told.grouped) s WHERE s.grouped;
    END IF;
    SELECT c.lines, c.ended_tenants, c.ended_ids INTO lines, ended_tenants, ended_ids
    FROM holdfast.count_ends(told.seqs, coalesce(told.grouped, '{}'), now, events) c;
END
$$;

-- Tells jobs, which the caller has locked, that parents of theirs have completed; one for each time
-- that a job is named. Those of which it was the last become ready, or complete with it. `grouped`:
-- tenants whose groups have limits.
CREATE OR REPLACE FUNCTION holdfast.count_ends(
    seqs bigint[], grouped text[], now bigint, events boolean,
    OUT lines jsonb, OUT ended_tenants text[], OUT ended_ids text[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH told AS MATERIALIZED (
        SELECT j.*, u.n AS ends, j.due <= u.n AND j.awaits IN ('join:', 'parents:') AS has_come,
            j.due <= u.n AND j.awaits = 'parents:' AND j.failed = 0 AS is_over
        FROM (SELECT x.seq, count(*)::integer AS n FROM unnest(seqs) AS x(seq) GROUP BY x.seq) u
        CROSS JOIN LATERAL (
            SELECT x.ctid AS place, x.parents[1] AS total, x.parents[2] AS due,
                x.parents[3] AS failed, x.awaits FROM holdfast.jobs x WHERE x.seq = u.seq LIMIT 1
        ) j WHERE j.due > 0
    ), counted_down AS (
        UPDATE holdfast.jobs j SET parents = ARRAY[t.total, greatest(t.due - t.ends, 0), t.failed],
            state = CASE WHEN NOT t.has_come THEN j.state
                WHEN j.run_at > now THEN 'scheduled' ELSE 'enqueued' END,
            gate = CASE WHEN NOT t.has_come THEN j.gate WHEN j.run_at > now THEN 2
                WHEN j.group_name IS NOT NULL AND j.tenant = ANY (grouped) THEN 1 ELSE 0 END,
            awaits = CASE WHEN t.has_come THEN NULL ELSE j.awaits END,
            updated_at = CASE WHEN t.has_come THEN now ELSE j.updated_at END
        FROM told t WHERE j.ctid = t.place AND NOT t.is_over
        RETURNING t.has_come, j.*
    ), gone AS (
        DELETE FROM holdfast.jobs j USING told t WHERE j.ctid = t.place AND t.is_over RETURNING j.*
    ), moved AS MATERIALIZED (
        SELECT 'ready' AS kind, c.seq, c.priority, c.run_at, c.gate, c.tenant, c.id, c.queue,
            c.type, c.group_name, c.attempt, c.fence, 0 AS size, 0 AS kept
        FROM counted_down c WHERE c.has_come
        UNION ALL
        SELECT 'completed', g.seq, 0, 0, NULL, g.tenant, g.id, g.queue, g.type, NULL, g.attempt,
            g.fence, g.size, CASE WHEN g.keep_us > 0 THEN 1 ELSE 0 END
        FROM gone g
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, expires_at, finished_at, keep_until,
            keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id,
            queue, type, codec, tags, origin, rules, error, progress, payload, journal, parents
        )
        SELECT g.seq, g.priority, g.run_at, g.created_at, now, g.expires_at, now, now + g.keep_us,
            g.keep_us, g.version, g.attempt, g.max_attempts, g.fence, g.lapses, g.misses, g.size,
            'completed', g.tenant, g.id, g.queue, g.type, g.codec, g.tags, g.origin, g.rules,
            g.error, g.progress, g.payload, g.journal, ARRAY[g.parents[1], 0, 0]
        FROM gone g WHERE g.keep_us > 0
    ), forgotten AS (
        INSERT INTO holdfast.leftovers SELECT g.seq FROM gone g
        WHERE g.journal IS NOT NULL AND g.keep_us <= 0
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, m.kind, m.tenant, m.id, m.queue, m.type, m.attempt,
            m.fence, CASE WHEN m.run_at > now THEN m.run_at END,
            CASE WHEN m.kind = 'ready' THEN 'join:' END
        FROM moved m WHERE events
    ), counted AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, waiting, scheduled, enqueued, blocked, completed, bytes,
            head_rank, head_seq, due
        )
        SELECT m.tenant, m.queue, m.group_name, -count(*), count(*) FILTER (WHERE m.gate = 2),
            count(*) FILTER (WHERE m.gate < 2), count(*) FILTER (WHERE m.gate = 1), sum(m.kept),
            -sum(m.size), min(-m.priority) FILTER (WHERE m.gate = 0),
            min(m.seq) FILTER (WHERE m.gate = 0), min(m.run_at) FILTER (WHERE m.gate = 2)
        FROM moved m GROUP BY m.tenant, m.queue, m.group_name
    )
    SELECT jsonb_agg(DISTINCT jsonb_build_array(m.tenant, m.queue)) FILTER (WHERE m.gate = 0),
        array_agg(m.tenant) FILTER (WHERE m.kind = 'completed'),
        array_agg(m.id) FILTER (WHERE m.kind = 'completed')
    INTO lines, ended_tenants, ended_ids FROM moved m;
END
$$;
