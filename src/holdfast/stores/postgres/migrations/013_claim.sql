-- Which lines have something, and the claim that takes from them. Both stand here, and no more where
-- claims began (005, 006), since they know the short ways of nearly every claim.

-- What deltas say of a line.
CREATE TYPE holdfast.news AS (
    tenant text, queue text, has bigint, came bigint, turn bigint, credit bigint, head_rank bigint,
    head_seq bigint
);

-- Lines that can be claimed from, the first ones in the order of their turns among them, but not in
-- order and more than asked for. Those that deltas name are worked out, all others are read by their
-- index. Not one statement: it would take longer to begin than to run. Stable, so that all of them
-- see what their caller's statement sees, and no fold comes in between.
CREATE OR REPLACE FUNCTION holdfast.lines(
    in_tenants text[], in_queues text[], most bigint, dry_tenants text[], dry_queues text[]
) RETURNS SETOF holdfast.line LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    low xid8;
    told holdfast.news[];
BEGIN
    SELECT floor INTO low FROM holdfast.heads;
    told := ARRAY(
        SELECT (
            x.tenant, x.queue, sum(x.enqueued - x.blocked),
            min(x.id) FILTER (WHERE x.enqueued > x.blocked), max(x.id) FILTER (WHERE x.served),
            (array_agg(x.credit ORDER BY x.id DESC) FILTER (WHERE x.credit IS NOT NULL))[1],
            min(x.head_rank), min(x.head_seq)
        )::holdfast.news
        FROM holdfast.deltas x WHERE x.txid >= low AND x.queue IS NOT NULL
        GROUP BY x.tenant, x.queue
    );
    -- NOT IN, which is looked up by hash whatever the planner thinks of how many there are.
    RETURN QUERY
    SELECT f.tenant, f.queue, f.has, f.turn, f.credit, f.low_rank, f.low_seq FROM (
        SELECT d.tenant, d.queue, coalesce(c.enqueued - c.blocked, 0) + d.has AS has,
            CASE WHEN coalesce(c.enqueued > c.blocked, false) THEN greatest(c.turn, d.turn)
                ELSE coalesce(greatest(d.turn, d.came), c.turn, 0) END AS turn,
            coalesce(d.credit, c.credit, 0) AS credit, coalesce(c.open, true) AS open,
            low.rank AS low_rank, low.seq AS low_seq
        FROM unnest(told) d
        -- Looked up one by one, by the key, whatever the planner thinks of the size of the counts.
        LEFT JOIN LATERAL (
            SELECT * FROM holdfast.counts x
            WHERE x.kind = 'queue' AND x.tenant = d.tenant AND x.part = d.queue LIMIT 1
        ) c ON true
        -- Without a row of counts, all of the line's jobs are in deltas.
        CROSS JOIN LATERAL holdfast.earlier_of(
            CASE WHEN c.tenant IS NULL THEN 9223372036854775807 ELSE c.floor_rank END,
            CASE WHEN c.tenant IS NULL THEN 9223372036854775807 ELSE c.floor_seq END,
            d.head_rank, d.head_seq
        ) low
        WHERE (in_tenants IS NULL OR d.tenant = ANY (in_tenants))
            AND (in_queues IS NULL OR d.queue = ANY (in_queues))
            AND (d.tenant, d.queue) NOT IN (
                SELECT u.tenant, u.queue FROM unnest(dry_tenants, dry_queues) AS u(tenant, queue)
            )
    ) f
    WHERE f.open AND f.has > 0;
    IF in_tenants IS NOT NULL THEN
        -- By the key, not by the indexes of lines: of one tenant there are few.
        RETURN QUERY
        SELECT c.tenant, c.part, c.enqueued - c.blocked, c.turn, c.credit,
            coalesce(c.floor_rank, -9223372036854775808), coalesce(c.floor_seq, 0)
        FROM (SELECT DISTINCT u.tenant FROM unnest(in_tenants) AS u(tenant)) t
        JOIN holdfast.counts c ON c.kind = 'queue' AND c.tenant = t.tenant
        WHERE (in_queues IS NULL OR c.part = ANY (in_queues))
            AND c.open AND c.enqueued - c.blocked > 0
            AND (c.tenant, c.part) NOT IN (SELECT d.tenant, d.queue FROM unnest(told) d)
            AND (c.tenant, c.part) NOT IN (
                SELECT u.tenant, u.queue FROM unnest(dry_tenants, dry_queues) AS u(tenant, queue)
            );
    ELSIF in_queues IS NOT NULL THEN
        RETURN QUERY
        SELECT l.tenant, l.part, l.has, l.turn, l.credit,
            coalesce(l.floor_rank, -9223372036854775808), coalesce(l.floor_seq, 0)
        FROM (SELECT DISTINCT u.queue FROM unnest(in_queues) AS u(queue)) q
        CROSS JOIN LATERAL (
            SELECT c.tenant, c.part, c.enqueued - c.blocked AS has, c.turn, c.credit,
                c.floor_rank, c.floor_seq
            FROM holdfast.counts c
            WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND c.part = q.queue
                AND (c.tenant, c.part) NOT IN (SELECT d.tenant, d.queue FROM unnest(told) d)
                AND (c.tenant, c.part) NOT IN (
                    SELECT u.tenant, u.queue
                    FROM unnest(dry_tenants, dry_queues) AS u(tenant, queue)
                )
            ORDER BY c.turn LIMIT most
        ) l;
    ELSE
        RETURN QUERY
        SELECT c.tenant, c.part, c.enqueued - c.blocked, c.turn, c.credit,
            coalesce(c.floor_rank, -9223372036854775808), coalesce(c.floor_seq, 0)
        FROM holdfast.counts c
        WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked
            AND (c.tenant, c.part) NOT IN (SELECT d.tenant, d.queue FROM unnest(told) d)
            AND (c.tenant, c.part) NOT IN (
                SELECT u.tenant, u.queue FROM unnest(dry_tenants, dry_queues) AS u(tenant, queue)
            )
        ORDER BY c.turn LIMIT most;
    END IF;
END
$$;

-- The first jobs of a line of a tenant without settings.
CREATE FUNCTION holdfast.pick_line(
    line holdfast.line, wanted bigint, excluded text[], now bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    low_rank bigint := line.low_rank;
    low_seq bigint := line.low_seq;
    picked bigint[];
BEGIN
    FOR pass IN 1..2 LOOP
        picked := ARRAY(
            SELECT r.seq FROM holdfast.ready r CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs j
                WHERE j.seq = r.seq AND j.state = 'enqueued' AND j.late = 0
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ) job
            WHERE r.gate = 0 AND r.queue = line.queue AND r.tenant = line.tenant
                AND (r.expires_at IS NULL OR r.expires_at > now)
                AND (r.group_name IS NULL OR NOT r.group_name = ANY (excluded))
                AND (r.rank, r.seq) >= (low_rank, low_seq)
            ORDER BY r.rank, r.seq LIMIT wanted
        );
        EXIT WHEN cardinality(picked) = wanted;
        -- Fewer than there should be: once more from the very beginning, lest one be forgotten.
        -- What was picked is locked by us and is picked again.
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
    RETURN picked;
END
$$;

-- As `take`, for jobs of one line.
CREATE FUNCTION holdfast.take_line(
    seqs bigint[], visit integer, of_tenant text, of_queue text, credit_left bigint,
    for_worker text, nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(seqs) = 0 THEN
        INSERT INTO holdfast.deltas (tenant, queue, served, credit, held)
        VALUES (of_tenant, of_queue, true, 0, now + lease_us);
        RETURN;
    END IF;
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH taken AS (
        UPDATE holdfast.jobs j SET state = 'processing', attempt = j.attempt + 1,
            fence = j.fence + 1, token = nonce || '.' || j.seq, lease_until = now + lease_us,
            worker = for_worker, updated_at = now, progress = NULL
        WHERE j.seq = ANY (seqs)
        RETURNING j.id, j.type, j.codec, j.version, j.payload, j.rules,
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
        SELECT nextval('holdfast.cursors'), now, 'leased', of_tenant, t.id, of_queue, t.type,
            t.attempt, t.fence, now + lease_us, for_worker
        FROM (SELECT * FROM taken x ORDER BY x.priority DESC, x.seq) t WHERE events
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, enqueued, processing, served, credit, held)
        SELECT of_tenant, of_queue, s.group_name, -s.number, s.number,
            s.place = 1 AND credit_left = 0, CASE WHEN s.place = 1 THEN credit_left END,
            now + lease_us
        FROM (
            SELECT t.group_name, count(*)::integer AS number,
                row_number() OVER (ORDER BY t.group_name) AS place
            FROM taken t GROUP BY t.group_name
        ) s
    )
    SELECT visit, of_tenant, t.id, of_queue, t.type, t.codec, t.version, t.payload, t.rules,
        t.priority, t.key, t.group_name, t.tags, t.origin, t.seq, t.attempt, t.fence, t.lapses,
        t.misses, t.created_at, t.updated_at, t.run_at, t.expires_at, t.lease_until, t.reason, t.error
    FROM taken t;
END
$$;

-- Leases up to so many jobs. A row without a seq says that sleepers must look again.
CREATE OR REPLACE FUNCTION holdfast.claim(
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
            ORDER BY l.turn LIMIT room
        );
        EXIT WHEN cardinality(found) = 0;
        line := found[1];
        IF cardinality(found) = 1
            AND NOT EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = line.tenant)
        THEN
            -- Nearly every claim of an idle worker: one line, that nothing was set for.
            quota := CASE WHEN line.credit > 0 THEN line.credit ELSE room END;
            seqs := holdfast.pick_line(line, least(quota, room, line.has), excluded, now);
            n := cardinality(seqs);
            RETURN QUERY SELECT * FROM holdfast.take_line(
                seqs, visit + 1, line.tenant, line.queue,
                CASE WHEN n = room AND n < quota THEN quota - n ELSE 0 END,
                for_worker, nonce, lease_us, now, events
            );
            EXIT WHEN n < least(quota, room) AND room > 1;
            IF n < least(quota, room) THEN
                dry_tenants := dry_tenants || line.tenant;
                dry_queues := dry_queues || line.queue;
            END IF;
            room := room - n;
            visit := visit + 1;
            CONTINUE;
        END IF;
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
