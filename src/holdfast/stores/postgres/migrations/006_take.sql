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

-- Leases up to so many jobs. A row without a seq says that sleepers must look again.
CREATE FUNCTION holdfast.claim(
    for_worker text, nonce text, most integer, lease_us bigint, in_tenants text[],
    in_queues text[], excluded text[], given_now bigint, probe boolean, events boolean,
    channel text, repair_most integer, repair_passes integer, lines_per_claim integer
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint;
    room bigint := most;
    asked bigint;
    before bigint;
    dried bigint;
    times bigint;
    more jsonb;
    found holdfast.line[];
    line holdfast.line;
    weights bigint[];
    are_ruled boolean[];
    pick record;
    -- Of this round: each line with what it may take, what it was asked for, and what it gave.
    tenants text[];
    queues text[];
    allowed bigint[];
    left_at bigint[];
    wanted bigint[];
    gave bigint[];
    seqs bigint[];
    plain_tenants text[];
    plain_queues text[];
    plain_quotas bigint[];
    plain_places integer[];
    plain_ranks bigint[];
    plain_seqs bigint[];
    plain_room bigint;
    dry_tenants text[] := '{}';
    dry_queues text[] := '{}';
    quota bigint;
    n integer;
    visit integer := 0;
BEGIN
    now := holdfast.instant(given_now);
    IF probe AND NOT EXISTS (SELECT FROM holdfast.lines(in_tenants, in_queues, 1, '{}', '{}'))
        AND NOT holdfast.overdue(now) AND NOT holdfast.unlooked()
    THEN
        RETURN;
    END IF;
    PERFORM holdfast.lock_claims();
    now := holdfast.instant_in_order(given_now);
    IF holdfast.repair(now, events, repair_most, repair_passes) THEN
        RETURN NEXT NULL::holdfast.lease;
        IF channel IS NOT NULL THEN
            PERFORM pg_notify(channel, '*');
        END IF;
    END IF;
    PERFORM holdfast.fold_in_time();
    WHILE room > 0 LOOP
        asked := room;
        found := ARRAY(
            SELECT l FROM holdfast.lines(in_tenants, in_queues, room, dry_tenants, dry_queues) l
            ORDER BY l.turn
        );
        EXIT WHEN cardinality(found) = 0;
        SELECT greatest(
            1, room / sum(w.weight)::bigint,
            room * count(*) / (sum(w.weight)::bigint * lines_per_claim)
        ), array_agg(w.weight ORDER BY w.n), array_agg(w.is_ruled ORDER BY w.n)
        INTO times, weights, are_ruled FROM (
            SELECT u.n, coalesce(s.weight, 1) AS weight, r.tenant IS NOT NULL AS is_ruled
            FROM unnest(found) WITH ORDINALITY
                AS u(tenant, queue, has, turn, credit, low_rank, low_seq, n)
            LEFT JOIN holdfast.ruled r ON r.tenant = u.tenant
            LEFT JOIN holdfast.scopes s ON s.kind = 'tenant' AND s.tenant = u.tenant AND s.part = ''
        ) w;
        tenants := '{}'; queues := '{}'; allowed := '{}'; left_at := '{}'; wanted := '{}';
        gave := '{}'; seqs := '{}';
        plain_tenants := '{}'; plain_queues := '{}'; plain_quotas := '{}'; plain_places := '{}';
        plain_ranks := '{}'; plain_seqs := '{}';
        plain_room := 0;
        n := 0;
        FOREACH line IN ARRAY found LOOP
            EXIT WHEN room = 0;
            n := n + 1;
            quota := CASE WHEN line.credit > 0 THEN line.credit ELSE weights[n] * times END;
            tenants := tenants || line.tenant;
            queues := queues || line.queue;
            allowed := allowed || quota;
            left_at := left_at || room;
            IF are_ruled[n] THEN
                more := coalesce(more, holdfast.running_more());
                SELECT * INTO pick FROM holdfast.pick_ruled(
                    line.tenant, line.queue, least(quota, room), line.low_rank, line.low_seq,
                    excluded, now, more
                );
                more := pick.more;
                wanted := wanted || pick.allowed;
                gave := gave || cardinality(pick.picked)::bigint;
                seqs := seqs || pick.picked;
                room := room - cardinality(pick.picked);
            ELSE
                before := least(quota, room, line.has);
                wanted := wanted || least(quota, room);
                gave := gave || 0::bigint;
                plain_tenants := plain_tenants || line.tenant;
                plain_queues := plain_queues || line.queue;
                plain_quotas := plain_quotas || before;
                plain_places := plain_places || n;
                plain_ranks := plain_ranks || line.low_rank;
                plain_seqs := plain_seqs || line.low_seq;
                plain_room := plain_room + before;
                room := room - before;
            END IF;
        END LOOP;
        IF cardinality(plain_tenants) > 0 THEN
            SELECT * INTO pick FROM holdfast.pick_plain(
                plain_tenants, plain_queues, plain_quotas, plain_places, plain_ranks, plain_seqs,
                excluded, now
            );
            IF coalesce(cardinality(pick.seqs), 0) < plain_room THEN
                -- Fewer than there should be: once more from the very beginning, lest one be
                -- forgotten. What was picked is locked by us and is picked again.
                SELECT * INTO pick FROM holdfast.pick_plain(
                    plain_tenants, plain_queues, plain_quotas, plain_places,
                    array_fill((-9223372036854775808)::bigint, ARRAY[cardinality(plain_ranks)]),
                    array_fill(0::bigint, ARRAY[cardinality(plain_ranks)]), excluded, now
                );
            END IF;
            seqs := seqs || pick.seqs;
            SELECT array_agg(CASE WHEN c.place IS NULL THEN gave[i] ELSE c.number END ORDER BY i)
            INTO gave FROM generate_series(1, n) i LEFT JOIN (
                SELECT u.place, count(p.place) AS number
                FROM unnest(plain_places) AS u(place)
                LEFT JOIN unnest(pick.places) AS p(place) ON p.place = u.place GROUP BY u.place
            ) c ON c.place = i;
            room := room + plain_room - coalesce(cardinality(pick.seqs), 0);
        END IF;
        RETURN QUERY SELECT * FROM holdfast.take(
            seqs, visit, tenants, queues,
            -- A turn that a full claim cut short goes on with the next.
            ARRAY(
                SELECT CASE WHEN gave[i] = left_at[i] AND gave[i] < allowed[i]
                    THEN allowed[i] - gave[i] ELSE 0 END FROM generate_series(1, n) i ORDER BY i
            ),
            for_worker, nonce, lease_us, now, events
        );
        SELECT dry_tenants || array_agg(tenants[i] ORDER BY i),
            dry_queues || array_agg(queues[i] ORDER BY i), count(*)
        INTO dry_tenants, dry_queues, dried
        FROM generate_series(1, n) i WHERE gave[i] < wanted[i] OR wanted[i] = 0;
        -- All lines that there are, and none has more: no need to look for others.
        EXIT WHEN dried = cardinality(found) AND dried < asked;
        visit := visit + n;
    END LOOP;
END
$$;
