-- Ack: completions. All other outcomes are decided by Python's rules (ack.py).

-- Completes leased jobs: nearly every ack. Follows up to `edges_max` of their edges. Returns the
-- places of the jobs that it completed, NULL if all of them (Python's rules must look at the
-- others), the lines that may have come up, the tenants with edges left to follow, to named joins
-- and others, and the jobs that have ended with their parents.
CREATE OR REPLACE FUNCTION holdfast.complete_jobs(
    seqs bigint[], tokens text[], of_tenants text[], of_ids text[], results bytea[],
    given_now bigint, events boolean, channel text, sender text, edges_max integer,
    OUT places integer[], OUT tenants text[], OUT queues text[], OUT named text[],
    OUT unnamed text[], OUT ended_tenants text[], OUT ended_ids text[]
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
    done record;
    ready jsonb;
BEGIN
    PERFORM holdfast.announce();
    SELECT * INTO done
    FROM holdfast.end_completed(seqs, tokens, of_tenants, of_ids, results, now, events);
    PERFORM holdfast.record_drained_groups(done.grouped, now)
    WHERE events AND done.grouped IS NOT NULL;
    IF coalesce(cardinality(done.places), 0) < cardinality(seqs) THEN
        places := coalesce(done.places, '{}');
    END IF;
    IF done.parents IS NOT NULL THEN
        SELECT f.named, f.unnamed, f.lines, f.ended_tenants, f.ended_ids
        INTO named, unnamed, ready, ended_tenants, ended_ids
        FROM holdfast.follow_completed(done.parents, edges_max, now, events) f;
        PERFORM holdfast.notify_ended_jobs(ended_tenants, ended_ids, channel, sender);
    END IF;
    SELECT array_agg(f.t), array_agg(f.q) INTO tenants, queues FROM (
        SELECT x.t, x.q FROM holdfast.notify_freed_lines(done.tenants, channel, sender) x
        UNION ALL
        SELECT y.t, y.q FROM holdfast.notify_lines(ready, channel, sender) y
    ) f;
END
$$;

-- Moves the leased ones of these jobs to the history, or deletes them if nothing is kept.
CREATE OR REPLACE FUNCTION holdfast.end_completed(
    seqs bigint[], tokens text[], of_tenants text[], of_ids text[], results bytea[], now bigint,
    events boolean, OUT places integer[], OUT tenants text[], OUT grouped holdfast.ended[],
    OUT parents holdfast.parent[]
) LANGUAGE plpgsql AS $$
BEGIN
    -- Looked up one by one, by the sequence alone, and deleted by their places, never by a join
    -- with the table; see lease_jobs. The same for keys.
    WITH named AS MATERIALIZED (
        SELECT u.token, u.result, u.ord, found.place
        FROM unnest(seqs, tokens, of_tenants, of_ids, results) WITH ORDINALITY
            AS u(seq, token, tenant, id, result, ord)
        CROSS JOIN LATERAL (
            SELECT j.ctid AS place, j.token, j.tenant, j.id FROM holdfast.jobs j
            WHERE j.seq = u.seq LIMIT 1
        ) found WHERE found.token = u.token AND found.tenant = u.tenant AND found.id = u.id
    ), gone AS (
        DELETE FROM holdfast.jobs j USING named n
        WHERE j.ctid = n.place AND j.token = n.token AND j.state = 'processing'
            AND j.lease_until > now
        RETURNING n.ord, n.result, j.*
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, expires_at, finished_at, keep_until,
            keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id,
            queue, type, codec, key, group_name, tags, origin, rules, error, progress, payload,
            result, journal, edges, parents
        )
        SELECT k.seq, k.priority, k.run_at, k.created_at, now, k.expires_at, now, now + k.keep_us,
            k.keep_us, k.version, k.attempt, k.max_attempts, k.fence, k.lapses, k.misses, k.size,
            'completed', k.tenant, k.id, k.queue, k.type, k.codec, k.key, k.group_name, k.tags,
            k.origin, k.rules, k.error, k.progress, k.payload, k.result, k.journal, k.edges,
            k.parents
        FROM gone k WHERE k.keep_us > 0 OR k.edges IS NOT NULL
    ), forgotten AS (
        INSERT INTO holdfast.leftovers SELECT g.seq FROM gone g
        WHERE g.journal IS NOT NULL AND g.keep_us <= 0 AND g.edges IS NULL
    ), freed AS (
        DELETE FROM holdfast.keys k USING (
            SELECT g.id, held.place FROM gone g CROSS JOIN LATERAL (
                SELECT x.ctid AS place FROM holdfast.keys x
                WHERE x.tenant = g.tenant AND x.queue = g.queue AND x.type = g.type
                    AND x.key = g.key LIMIT 1
            ) held WHERE g.key IS NOT NULL
        ) n WHERE k.ctid = n.place AND k.id = n.id AND coalesce(k.until, 0) <= now
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'completed', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence
        FROM (SELECT * FROM gone x ORDER BY x.ord) g WHERE events
    ), counted AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, type, processing, completed, bytes)
        SELECT g.tenant, g.queue, g.group_name, g.type, -count(*),
            count(*) FILTER (WHERE g.keep_us > 0 OR g.edges IS NOT NULL), -sum(g.size)
        FROM gone g GROUP BY g.tenant, g.queue, g.group_name, g.type
    )
    SELECT array_agg(g.ord::integer) AS places, array_agg(DISTINCT g.tenant) AS tenants,
        array_agg((g.tenant, g.group_name, g.id, g.queue, g.type, g.attempt, g.fence)
            ::holdfast.ended ORDER BY g.ord) FILTER (WHERE g.group_name IS NOT NULL) AS grouped,
        array_agg((g.seq, g.tenant, g.id, g.edges)::holdfast.parent)
            FILTER (WHERE g.edges IS NOT NULL) AS parents
    INTO places, tenants, grouped, parents FROM gone g;
END
$$;

-- Records that groups have no living job left, after these jobs have ended. The locks let one of
-- two calls that end the last jobs of a group see the other's.
CREATE OR REPLACE FUNCTION holdfast.record_drained_groups(jobs holdfast.ended[], now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.drained'), stripe) FROM (
        SELECT DISTINCT hashtext(u.tenant || '/' || u.group_name) & 255 AS stripe
        FROM unnest(jobs) u ORDER BY stripe
    ) s;
    INSERT INTO holdfast.events
    SELECT nextval('holdfast.cursors'), now, 'drained', d.tenant, d.id, d.queue, d.type, d.attempt,
        d.fence, NULL, d.group_name
    FROM (
        SELECT DISTINCT ON (u.tenant, u.group_name) u.*
        FROM unnest(jobs) WITH ORDINALITY
            AS u(tenant, group_name, id, queue, type, attempt, fence, ord)
        ORDER BY u.tenant, u.group_name, u.ord DESC
    ) d
    WHERE NOT EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.tenant = d.tenant AND j.group_name = d.group_name
    );
END
$$;
