-- The claim itself.
--
-- The busy functions fix how they are planned: their tables are empty one moment and full the next,
-- so statistics mislead, and planning anew would cost more than the work.

CREATE TYPE holdfast.lease AS (
    visit integer, tenant text, id text, queue text, type text, codec text, version integer,
    payload bytea, rules text, priority bigint, key text, group_name text, tags text[], origin text,
    seq bigint, attempt integer, fence integer, lapses integer, misses integer, created_at bigint,
    updated_at bigint, run_at bigint, expires_at bigint, lease_until bigint, reason text, error text
);

-- The first jobs of each of these lines, as many as it may take; of tenants without settings.
CREATE FUNCTION holdfast.pick_plain(
    tenants text[], queues text[], quotas bigint[], visits integer[], low_ranks bigint[],
    low_seqs bigint[], excluded text[], now bigint,
    OUT seqs bigint[], OUT places integer[]
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT array_agg(first.seq), array_agg(line.visit) INTO seqs, places
    FROM unnest(tenants, queues, quotas, visits, low_ranks, low_seqs)
        AS line(tenant, queue, quota, visit, low_rank, low_seq)
    CROSS JOIN LATERAL (
        SELECT r.seq FROM holdfast.ready r CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs j
            WHERE j.seq = r.seq AND j.state = 'enqueued' AND j.late = 0
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) job
        WHERE r.gate = 0 AND r.queue = line.queue AND r.tenant = line.tenant
            AND (r.expires_at IS NULL OR r.expires_at > now)
            AND (r.group_name IS NULL OR NOT r.group_name = ANY (excluded))
            AND (r.rank, r.seq) >= (line.low_rank, line.low_seq)
        ORDER BY r.rank, r.seq LIMIT line.quota
    ) first;
END
$$;

-- Leases these jobs, and counts and records it; the lines' turns end, or what is left of them is
-- kept (`credits`).
CREATE FUNCTION holdfast.take(
    seqs bigint[], visit integer, tenants text[], queues text[], credits bigint[],
    for_worker text, nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
BEGIN
    IF events AND cardinality(seqs) > 0 THEN
        PERFORM holdfast.announce();
    END IF;
    -- By the array, never by a join with it: a plan made while the table was empty may read an index
    -- from end to end, dead entries and all.
    RETURN QUERY
    WITH lines AS MATERIALIZED (
        SELECT u.tenant, u.queue, u.credit, u.n::integer AS n
        FROM unnest(tenants, queues, credits) WITH ORDINALITY AS u(tenant, queue, credit, n)
    ), taken AS (
        UPDATE holdfast.jobs j SET state = 'processing', attempt = j.attempt + 1,
            fence = j.fence + 1, token = nonce || '.' || j.seq, lease_until = now + lease_us,
            worker = for_worker, updated_at = now, progress = NULL
        WHERE j.seq = ANY (seqs)
        RETURNING j.tenant, j.id, j.queue, j.type, j.codec, j.version, j.payload, j.rules,
            j.priority, j.key, j.group_name, j.tags, j.origin, j.seq, j.attempt, j.fence, j.lapses,
            j.misses, j.created_at, j.updated_at, j.run_at, j.expires_at, j.lease_until, j.reason,
            j.error, j.attempt < j.max_attempts AS again
    ), out_of_line AS (
        DELETE FROM holdfast.ready r WHERE r.seq = ANY (seqs)
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT now + lease_us, NOT t.again, array_agg(t.seq) FROM taken t GROUP BY t.again
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'leased', t.tenant, t.id, t.queue, t.type,
            t.attempt, t.fence, now + lease_us, for_worker
        FROM (
            SELECT x.* FROM taken x JOIN lines l ON l.tenant = x.tenant AND l.queue = x.queue
            ORDER BY l.n, x.priority DESC, x.seq
        ) t WHERE events
    ), summed AS (
        SELECT t.tenant, t.queue, t.group_name, count(*)::integer AS number,
            row_number() OVER (PARTITION BY t.tenant, t.queue ORDER BY t.group_name) AS place
        FROM taken t GROUP BY t.tenant, t.queue, t.group_name
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, enqueued, processing, served, credit, held)
        SELECT l.tenant, l.queue, s.group_name, -coalesce(s.number, 0), coalesce(s.number, 0),
            coalesce(s.place, 1) = 1 AND l.credit = 0,
            CASE WHEN coalesce(s.place, 1) = 1 THEN l.credit END, now + lease_us
        FROM lines l LEFT JOIN summed s ON s.tenant = l.tenant AND s.queue = l.queue
        ORDER BY l.n, s.place
    )
    SELECT visit + l.n, t.tenant, t.id, t.queue, t.type, t.codec, t.version, t.payload, t.rules,
        t.priority, t.key, t.group_name, t.tags, t.origin, t.seq, t.attempt, t.fence, t.lapses,
        t.misses, t.created_at, t.updated_at, t.run_at, t.expires_at, t.lease_until, t.reason, t.error
    FROM taken t
    JOIN lines l ON l.tenant = t.tenant AND l.queue = t.queue;
END
$$;
