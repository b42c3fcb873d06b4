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
-- it never waits. Returns the tenants with noted edges of either kind, lines with jobs that are
-- ready now, and jobs that have ended with their parents.
CREATE OR REPLACE FUNCTION holdfast.follow_completed(
    parents holdfast.parent[], most integer, now bigint, events boolean,
    OUT named text[], OUT unnamed text[], OUT lines jsonb, OUT ended_tenants text[],
    OUT ended_ids text[]
) LANGUAGE plpgsql AS $$
DECLARE
    told record;
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT x.n, x.tenant, split_part(x.edge, E'\x1f', 1) AS target,
            split_part(x.edge, E'\x1f', 2) = '' AND x.n <= most AS is_asked
        FROM holdfast.edges_of(parents) x
    ), met AS MATERIALIZED (
        SELECT a.n, j.*
        FROM asked a LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.parents[2] AS due, x.parents[3] AS failed, x.awaits,
                x.group_name IS NOT NULL AS is_grouped,
                -- How jobs end that others see besides is for Python's rules.
                x.late = 0 AND (x.awaits IS DISTINCT FROM 'parents:'
                    OR x.group_name IS NULL AND x.key IS NULL AND x.edges IS NULL) AS is_done
            FROM holdfast.jobs x
            WHERE x.tenant = a.tenant AND x.id = a.target LIMIT 1 FOR UPDATE SKIP LOCKED
        ) j ON a.is_asked
    ), ends AS (
        SELECT m.place, greatest(m.due - count(*), 0) AS due, m.is_grouped,
            m.due <= count(*) AND m.awaits IN ('join:', 'parents:') AS has_come,
            m.due <= count(*) AND m.awaits = 'parents:' AND m.failed = 0 AS is_over
        FROM met m WHERE m.is_done AND m.due > 0
        GROUP BY m.place, m.due, m.failed, m.awaits, m.is_grouped
    )
    SELECT array_agg(e.place) FILTER (WHERE NOT e.is_over) AS places,
        array_agg(e.due::integer) FILTER (WHERE NOT e.is_over) AS dues,
        array_agg(e.has_come) FILTER (WHERE NOT e.is_over) AS come,
        array_agg(e.place) FILTER (WHERE e.is_over) AS over, bool_or(e.is_grouped) AS is_grouped,
        (SELECT array_agg(m.n) FROM met m WHERE m.is_done IS NOT TRUE) AS others
    INTO told FROM ends e;
    IF told.others IS NOT NULL THEN
        SELECT o.named, o.unnamed INTO named, unnamed
        FROM holdfast.note_edges(parents, told.others, most) o;
    END IF;
    IF told.places IS NOT NULL THEN
        lines := holdfast.count_ends(told.places, told.dues, told.come, CASE WHEN told.is_grouped
            THEN ARRAY(SELECT p.tenant FROM unnest(parents) p) END, now, events);
    END IF;
    IF told.over IS NOT NULL THEN
        SELECT o.tenants, o.ids INTO ended_tenants, ended_ids
        FROM holdfast.end_with_parents(told.over, now, events) o;
    END IF;
END
$$;

-- The edges of these jobs, numbered from 1.
CREATE OR REPLACE FUNCTION holdfast.edges_of(
    parents holdfast.parent[], OUT n bigint, OUT seq bigint, OUT tenant text, OUT id text,
    OUT edge text
) RETURNS SETOF record LANGUAGE sql IMMUTABLE AS $$
    SELECT row_number() OVER (), p.seq, p.tenant, p.id, e.edge
    FROM unnest(parents) p CROSS JOIN LATERAL unnest(p.edges) AS e(edge)
$$;

-- Notes those of the edges with these numbers whose targets live, and all after `most`. Returns the
-- tenants of those that lead to named joins, and of the others.
CREATE OR REPLACE FUNCTION holdfast.note_edges(
    parents holdfast.parent[], numbers bigint[], most integer,
    OUT named text[], OUT unnamed text[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH found AS MATERIALIZED (
        SELECT x.*, split_part(x.edge, E'\x1f', 2) = '' AS is_unnamed
        FROM holdfast.edges_of(parents) x
        -- Each target is looked up by itself: a join could read the jobs of all tenants.
        WHERE x.n = ANY (numbers) AND (x.n > most OR (
            SELECT true FROM holdfast.jobs j
            WHERE j.tenant = x.tenant AND j.id = split_part(x.edge, E'\x1f', 1) LIMIT 1
        ))
    ), noted AS (
        INSERT INTO holdfast.releasing (seq, part, tenant, id, state, edges)
        SELECT r.seq, p.part, r.tenant, r.id, 'completed', p.edges
        FROM (
            SELECT f.seq, f.tenant, f.id, array_agg(f.edge ORDER BY f.n) AS edges
            FROM found f GROUP BY f.seq, f.tenant, f.id
        ) r CROSS JOIN LATERAL holdfast.edge_parts(r.edges) p
    )
    SELECT array_agg(DISTINCT f.tenant) FILTER (WHERE NOT f.is_unnamed),
        array_agg(DISTINCT f.tenant) FILTER (WHERE f.is_unnamed)
    INTO named, unnamed FROM found f;
END
$$;

-- Follows noted edges of completed jobs of these tenants, as `complete_jobs` does those of its own;
-- but waits for those who hold the targets. One call at a time does, so that a join is written once
-- for all that it finds. Returns the tenants with edges for Python's rules; `more`: edges are left
-- for the next claims.
CREATE OR REPLACE FUNCTION holdfast.release_completed(
    of_tenants text[], wait_ms text, most integer, given_now bigint, events boolean, channel text,
    sender text, OUT tenants text[], OUT queues text[], OUT left_over text[],
    OUT ended_tenants text[], OUT ended_ids text[], OUT more boolean
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint;
    taken holdfast.parent[];
    done record;
BEGIN
    PERFORM set_config('lock_timeout', wait_ms, true),
        pg_advisory_xact_lock(hashtext('holdfast.release'), 0);
    now := holdfast.now_us(given_now);
    taken := holdfast.take_noted(of_tenants, most);
    IF taken IS NULL THEN
        RETURN;
    END IF;
    PERFORM holdfast.announce();
    PERFORM holdfast.lock_targets(taken);
    SELECT * INTO done FROM holdfast.follow_completed(taken, most, now, events);
    left_over := done.named || done.unnamed;
    ended_tenants := done.ended_tenants;
    ended_ids := done.ended_ids;
    PERFORM holdfast.notify_ended_jobs(ended_tenants, ended_ids, channel, sender);
    SELECT array_agg(l.t), array_agg(l.q) INTO tenants, queues
    FROM holdfast.notify_lines(done.lines, channel, sender) l;
    more := left_over IS NULL AND EXISTS (
        SELECT FROM unnest(of_tenants) AS u(tenant) CROSS JOIN LATERAL (
            SELECT FROM holdfast.releasing r WHERE r.tenant = u.tenant LIMIT 1
        ) r
    );
    PERFORM pg_notify(channel, '*') WHERE more AND channel IS NOT NULL;
END
$$;

-- Takes parts of edges of completed jobs out of `releasing`, about `most` edges.
CREATE OR REPLACE FUNCTION holdfast.take_noted(of_tenants text[], most integer)
RETURNS holdfast.parent[] LANGUAGE plpgsql AS $$
DECLARE
    taken holdfast.parent[];
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.releasing r WHERE r.ctid = ANY (ARRAY(
            SELECT p.place FROM unnest(of_tenants) AS u(tenant) CROSS JOIN LATERAL (
                SELECT y.place, y.state,
                    sum(cardinality(y.edges)) OVER (ORDER BY y.seq, y.part) AS upto
                FROM (
                    SELECT x.ctid AS place, x.* FROM holdfast.releasing x
                    WHERE x.tenant = u.tenant ORDER BY x.seq, x.part
                    LIMIT most / cardinality(of_tenants)
                ) y
            ) p
            WHERE p.state = 'completed' AND p.upto < most / cardinality(of_tenants) + 50
        )) RETURNING r.*
    )
    SELECT array_agg((g.seq, g.tenant, g.id, g.edges)::holdfast.parent) INTO taken FROM gone g;
    RETURN taken;
END
$$;

-- Locks the targets of edges, in one order.
CREATE OR REPLACE FUNCTION holdfast.lock_targets(parents holdfast.parent[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM (
        SELECT DISTINCT j.seq
        FROM holdfast.edges_of(parents) x CROSS JOIN LATERAL (
            SELECT y.seq FROM holdfast.jobs y
            WHERE y.tenant = x.tenant AND y.id = split_part(x.edge, E'\x1f', 1) LIMIT 1
        ) j ORDER BY j.seq
    ) u CROSS JOIN LATERAL (
        SELECT FROM holdfast.jobs j WHERE j.seq = u.seq FOR UPDATE
    ) held;
END
$$;

-- Writes to jobs, which the caller has locked, how many ends each awaits yet. Those whose time has
-- `come` are ready. `of_tenants`: whose groups may have limits. Returns the lines of ready jobs.
CREATE OR REPLACE FUNCTION holdfast.count_ends(
    places tid[], dues integer[], come boolean[], of_tenants text[], now bigint, events boolean
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    grouped text[] := '{}';
    lines jsonb;
BEGIN
    IF of_tenants IS NOT NULL THEN
        grouped := ARRAY(
            SELECT s.tenant FROM holdfast.settings_of_tenants(of_tenants) s WHERE s.grouped
        );
    END IF;
    WITH changed AS (
        UPDATE holdfast.jobs j SET parents = ARRAY[j.parents[1], u.due, j.parents[3]],
            state = CASE WHEN NOT u.come THEN j.state
                WHEN j.run_at > now THEN 'scheduled' ELSE 'enqueued' END,
            gate = CASE WHEN NOT u.come THEN j.gate WHEN j.run_at > now THEN 2
                WHEN j.group_name IS NOT NULL AND j.tenant = ANY (grouped) THEN 1 ELSE 0 END,
            awaits = CASE WHEN NOT u.come THEN j.awaits END,
            updated_at = CASE WHEN u.come THEN now ELSE j.updated_at END
        FROM unnest(places, dues, come) AS u(place, due, come) WHERE j.ctid = u.place
        RETURNING u.come, j.seq, j.priority, j.run_at, j.gate, j.tenant, j.id, j.queue, j.type,
            j.group_name, j.attempt, j.fence
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'ready', c.tenant, c.id, c.queue, c.type,
            c.attempt, c.fence, CASE WHEN c.run_at > now THEN c.run_at END, 'join:'
        FROM changed c WHERE events AND c.come
    ), counted AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, waiting, scheduled, enqueued, blocked, head_rank, head_seq,
            due
        )
        SELECT c.tenant, c.queue, c.group_name, -count(*), count(*) FILTER (WHERE c.gate = 2),
            count(*) FILTER (WHERE c.gate < 2), count(*) FILTER (WHERE c.gate = 1),
            min(-c.priority) FILTER (WHERE c.gate = 0), min(c.seq) FILTER (WHERE c.gate = 0),
            min(c.run_at) FILTER (WHERE c.gate = 2)
        FROM changed c WHERE c.come GROUP BY c.tenant, c.queue, c.group_name
        RETURNING tenant, queue
    )
    SELECT jsonb_agg(jsonb_build_array(c.tenant, c.queue)) INTO lines FROM counted c;
    RETURN lines;
END
$$;

-- Completes jobs, which the caller has locked, that end with their parents.
CREATE OR REPLACE FUNCTION holdfast.end_with_parents(
    places tid[], now bigint, events boolean, OUT tenants text[], OUT ids text[]
) LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.jobs j WHERE j.ctid = ANY (places) RETURNING j.*
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
        SELECT nextval('holdfast.cursors'), now, 'completed', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence
        FROM gone g WHERE events
    ), counted AS (
        INSERT INTO holdfast.deltas (tenant, queue, waiting, completed, bytes)
        SELECT g.tenant, g.queue, -count(*), count(*) FILTER (WHERE g.keep_us > 0), -sum(g.size)
        FROM gone g GROUP BY g.tenant, g.queue
    )
    SELECT array_agg(g.tenant), array_agg(g.id) INTO tenants, ids FROM gone g;
END
$$;
