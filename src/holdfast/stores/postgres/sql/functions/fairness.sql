-- Whose turn it is: tenants take turns first, then the lines of a tenant. What counts say is up to
-- date but for the deltas, so lines and tenants that deltas name are computed, all others read by
-- an index.

-- The lines that deltas name, as they are now; but not by those deltas that change nothing in the
-- order of claims, as of jobs that ended. STABLE, so that it sees what the statement of its caller
-- sees.
CREATE OR REPLACE FUNCTION holdfast.line_changes() RETURNS holdfast.line_change[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN ARRAY(
        SELECT (
            d.tenant, d.queue, coalesce(c.enqueued - c.blocked, 0) + d.has,
            coalesce(c.open AND c.enqueued > c.blocked, false), coalesce(c.open, true),
            CASE WHEN coalesce(c.enqueued > c.blocked, false) THEN greatest(c.turn, d.turn)
                ELSE coalesce(greatest(d.turn, d.came), c.turn, 0) END,
            low.place[1], low.place[2], d.came, d.turned, d.credits[1], d.credits[2]
        )::holdfast.line_change
        FROM (
            SELECT x.tenant, x.queue, sum(x.enqueued - x.blocked) AS has,
                min(x.id) FILTER (WHERE x.enqueued > x.blocked) AS came,
                max(x.id) FILTER (WHERE x.served) AS turn,
                    max(x.id) FILTER (WHERE x.turned) AS turned,
                max(ARRAY[x.id, x.credit]) FILTER (WHERE x.credit IS NOT NULL) AS credits,
                min(x.head_rank) AS head_rank, min(x.head_seq) AS head_seq
            FROM holdfast.deltas x
            WHERE x.id >= (SELECT deltas_floor FROM holdfast.store_state)
                AND x.queue IS NOT NULL AND (
                    x.enqueued <> 0 OR x.blocked <> 0 OR x.served OR x.head_rank IS NOT NULL
                )
            GROUP BY x.tenant, x.queue
        ) d
        -- Looked up one by one, by the key, whatever the planner thinks of the size of the counts.
        LEFT JOIN LATERAL (
            SELECT * FROM holdfast.counts x
            WHERE x.kind = 'queue' AND x.tenant = d.tenant AND x.part = d.queue LIMIT 1
        ) c ON true
        CROSS JOIN LATERAL holdfast.first_position(
            c.tenant IS NULL, c.floor_rank, c.floor_seq, d.head_rank, d.head_seq
        ) low
    );
END
$$;

-- True when a tenant has an open line with jobs in one of these queues that no delta names.
CREATE OR REPLACE FUNCTION holdfast.has_unchanged_line(of_tenant text, in_queues text[],
    changes holdfast.line_change[])
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM unnest(in_queues) AS q(queue)
        JOIN holdfast.counts c ON c.kind = 'queue' AND c.tenant = of_tenant AND c.part = q.queue
        WHERE c.open AND c.enqueued > c.blocked AND NOT EXISTS (
            SELECT FROM unnest(changes) u WHERE u.tenant = of_tenant AND u.queue = q.queue
        )
    );
END
$$;

-- The tenants that deltas name and that can be claimed from. `dry` lines gave less than they have
-- to this very claim; they are among those that deltas name. A function that PostgreSQL can inline.
CREATE OR REPLACE FUNCTION holdfast.changed_tenants(
    changes holdfast.line_change[], in_tenants text[], in_queues text[], dry_tenants text[],
        dry_queues text[]
) RETURNS SETOF holdfast.tenant_turn LANGUAGE sql STABLE AS $$
    SELECT t.tenant, CASE
            WHEN coalesce(c.lines > 0 OR c.kept, false) THEN greatest(c.turn, t.turned)
            ELSE coalesce(greatest(t.turned, t.came), c.turn, 0) END,
        coalesce(t.credits[2], c.credit, 0)
    FROM (
        SELECT u.tenant, min(u.came) AS came, max(u.turned) AS turned,
            max(ARRAY[u.credit_at, u.credit]) FILTER (WHERE u.credit IS NOT NULL) AS credits,
            count(*) FILTER (WHERE u.was_line) AS was_line, bool_or(
                u.open AND u.has > 0 AND (in_queues IS NULL OR u.queue = ANY (in_queues))
                AND (u.tenant, u.queue) NOT IN (
                    SELECT d.tenant, d.queue
                        FROM unnest(dry_tenants, dry_queues) AS d(tenant, queue)
                )
            ) AS has
        FROM unnest(changes) u WHERE in_tenants IS NULL OR u.tenant = ANY (in_tenants)
        GROUP BY u.tenant
    ) t
    LEFT JOIN LATERAL (
        SELECT * FROM holdfast.counts x
        WHERE x.kind = 'tenant' AND x.tenant = t.tenant AND x.part = '' LIMIT 1
    ) c ON true
    WHERE coalesce(c.open, true) AND (t.has OR coalesce(c.lines, 0) > t.was_line AND (
        in_queues IS NULL OR holdfast.has_unchanged_line(t.tenant, in_queues, changes)
    ))
$$;

-- The first tenants that are not among the `named` ones and that have an open line in one of these
-- queues, by the line's copy of its tenant's turn. A copy is never too large. Copies at the head of
-- a queue that are out of date are corrected and lines of closed tenants are parked, until all at
-- the head are right: then nobody comes before them.
CREATE OR REPLACE FUNCTION holdfast.tenants_of_queues(
    named text[], of_queues text[], most bigint
) RETURNS SETOF holdfast.tenant_turn LANGUAGE plpgsql AS $$
DECLARE
    near record;
    seen bigint := most;
    fixed bigint := 0;
BEGIN
    LOOP
        SELECT array_agg(l.tenant) FILTER (WHERE l.tenant_turn <> t.turn OR NOT t.open) AS tenants,
            array_agg(l.part) FILTER (WHERE l.tenant_turn <> t.turn OR NOT t.open) AS queues,
            array_agg(DISTINCT (l.tenant, t.turn, t.credit)::holdfast.tenant_turn)
                FILTER (WHERE t.open) AS found
        INTO near FROM unnest(of_queues) AS q(queue) CROSS JOIN LATERAL (
            SELECT c.tenant, c.part, c.tenant_turn FROM holdfast.counts c
            WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND NOT c.parked
                AND c.part = q.queue AND c.tenant NOT IN (SELECT unnest(named))
            ORDER BY c.tenant_turn LIMIT seen
        ) l CROSS JOIN LATERAL (
            SELECT x.turn, x.credit, x.open FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = l.tenant AND x.part = '' LIMIT 1
        ) t;
        -- Where very many are out of date, this claim takes what it has, and the next ones go on.
        EXIT WHEN near.tenants IS NULL OR (fixed >= 5000 AND cardinality(near.found) > 0);
        UPDATE holdfast.counts c SET tenant_turn = t.turn, parked = NOT t.open
        FROM unnest(near.tenants, near.queues) AS n(tenant, queue) CROSS JOIN LATERAL (
            SELECT x.turn, x.open FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = n.tenant AND x.part = '' LIMIT 1
        ) t
        WHERE c.kind = 'queue' AND c.tenant = n.tenant AND c.part = n.queue;
        fixed := fixed + cardinality(near.tenants);
        seen := least(2 * seen, 1000);
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(near.found::holdfast.tenant_turn[]);
END
$$;

-- Tenants that can be claimed from and that no delta names, read by their index. The first `most`
-- in the order of turns are among them, unsorted. The caller has the lock of claims.
CREATE OR REPLACE FUNCTION holdfast.unchanged_tenants(
    changes holdfast.line_change[], in_tenants text[], in_queues text[], most bigint
) RETURNS SETOF holdfast.tenant_turn LANGUAGE plpgsql AS $$
BEGIN
    IF in_tenants IS NOT NULL THEN
        RETURN QUERY
        SELECT c.tenant, c.turn, c.credit
        FROM (SELECT DISTINCT u.tenant FROM unnest(in_tenants) AS u(tenant)) t
        CROSS JOIN LATERAL (
            SELECT * FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = t.tenant AND x.part = '' LIMIT 1
        ) c
        WHERE c.open AND c.lines > 0 AND c.tenant NOT IN (SELECT u.tenant FROM unnest(changes) u)
            AND (in_queues IS NULL OR holdfast.has_unchanged_line(c.tenant, in_queues, changes));
    ELSIF in_queues IS NOT NULL THEN
        RETURN QUERY
        SELECT f.tenant, f.turn, f.credit FROM holdfast.tenants_of_queues(
            ARRAY(SELECT DISTINCT u.tenant FROM unnest(changes) u),
            ARRAY(SELECT DISTINCT u.queue FROM unnest(in_queues) AS u(queue)), most
        ) f;
    ELSE
        RETURN QUERY
        SELECT c.tenant, c.turn, c.credit FROM holdfast.counts c
        WHERE c.kind = 'tenant' AND c.open AND c.lines > 0
            AND c.tenant NOT IN (SELECT u.tenant FROM unnest(changes) u)
        ORDER BY c.turn LIMIT most;
    END IF;
END
$$;

-- The first lines of these tenants in the order of their turns, up to so many of each; `owners`:
-- the places of their tenants.
CREATE OR REPLACE FUNCTION holdfast.lines_of_tenants(
    changes holdfast.line_change[], of_tenants text[], mosts bigint[], in_queues text[],
    dry_tenants text[], dry_queues text[], OUT owners integer[], OUT tenants text[],
    OUT queues text[], OUT has bigint[], OUT low_ranks bigint[], OUT low_seqs bigint[]
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT array_agg(f.place), array_agg(f.tenant), array_agg(f.queue), array_agg(f.has),
        array_agg(f.low_rank), array_agg(f.low_seq)
    INTO owners, tenants, queues, has, low_ranks, low_seqs FROM (
        SELECT l.*, row_number() OVER (PARTITION BY l.place ORDER BY l.turn, l.queue) AS n FROM (
            SELECT w.place::integer, w.most, u.tenant, u.queue, u.has, u.turn, u.low_rank, u.low_seq
            FROM unnest(changes) u JOIN unnest(of_tenants, mosts) WITH ORDINALITY
                AS w(tenant, most, place) ON w.tenant = u.tenant
            WHERE u.open AND u.has > 0 AND (in_queues IS NULL OR u.queue = ANY (in_queues))
                AND (u.tenant, u.queue) NOT IN (
                    SELECT d.tenant, d.queue
                        FROM unnest(dry_tenants, dry_queues) AS d(tenant, queue)
                )
            UNION ALL
            SELECT w.place::integer, w.most, s.* FROM unnest(of_tenants, mosts) WITH ORDINALITY
                AS w(tenant, most, place) CROSS JOIN LATERAL (
                SELECT c.tenant, c.part, c.enqueued - c.blocked, c.turn,
                    coalesce(c.floor_rank, -9223372036854775808), coalesce(c.floor_seq, 0)
                FROM holdfast.counts c
                WHERE in_queues IS NULL AND c.kind = 'queue' AND c.open AND c.enqueued > c.blocked
                    AND c.tenant = w.tenant
                    AND (c.tenant, c.part) NOT IN (SELECT u.tenant, u.queue FROM unnest(changes) u)
                ORDER BY c.turn LIMIT w.most
            ) s
            UNION ALL
            SELECT n.place::integer, n.most, c.* FROM (
                SELECT w.*, q.queue FROM unnest(of_tenants, mosts) WITH ORDINALITY
                    AS w(tenant, most, place)
                CROSS JOIN (SELECT DISTINCT q.queue FROM unnest(in_queues) AS q(queue)) q
                WHERE (w.tenant, q.queue) NOT IN (SELECT u.tenant, u.queue FROM unnest(changes) u)
            ) n CROSS JOIN LATERAL (
                SELECT x.tenant, x.part, x.enqueued - x.blocked AS has, x.turn,
                    coalesce(x.floor_rank, -9223372036854775808), coalesce(x.floor_seq, 0)
                FROM holdfast.counts x
                WHERE x.kind = 'queue' AND x.tenant = n.tenant AND x.part = n.queue AND x.open
                LIMIT 1
            ) c WHERE c.has > 0
        ) l ORDER BY l.place, l.turn, l.queue
    ) f WHERE f.n <= f.most;
END
$$;

-- True when there may be something to claim. Reads a few lines of a queue at most: if all of these
-- belong to closed tenants the answer is true, and the claim parks them.
CREATE OR REPLACE FUNCTION holdfast.can_claim(in_tenants text[], in_queues text[], now bigint)
RETURNS boolean LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    changes holdfast.line_change[];
    by_platform boolean;
BEGIN
    IF (SELECT platform FROM holdfast.store_state) THEN
        by_platform := holdfast.platform_can_claim(in_tenants, in_queues, now);
    END IF;
    IF by_platform IS NOT NULL THEN
        RETURN by_platform;
    END IF;
    changes := holdfast.line_changes();
    IF EXISTS (
        SELECT FROM holdfast.changed_tenants(changes, in_tenants, in_queues, '{}', '{}')
    ) THEN
        RETURN true;
    ELSIF in_tenants IS NOT NULL OR in_queues IS NULL THEN
        RETURN EXISTS (
            SELECT FROM holdfast.counts c
            WHERE c.kind = 'tenant' AND c.open AND c.lines > 0 AND in_tenants IS NULL
                AND c.tenant NOT IN (SELECT u.tenant FROM unnest(changes) u)
        ) OR EXISTS (
            SELECT FROM unnest(in_tenants) AS t(tenant)
            JOIN holdfast.counts c ON c.kind = 'tenant' AND c.tenant = t.tenant AND c.part = ''
            WHERE c.open AND c.lines > 0 AND c.tenant NOT IN (SELECT u.tenant
                FROM unnest(changes) u)
                AND (in_queues IS NULL OR holdfast.has_unchanged_line(c.tenant, in_queues, changes))
        );
    END IF;
    RETURN coalesce((
        SELECT bool_or(l.open) OR max(l.number) = 100
        FROM unnest(in_queues) AS q(queue) CROSS JOIN LATERAL (
            SELECT bool_or(coalesce(t.open, true)) AS open, count(*) AS number FROM (
                SELECT c.tenant FROM holdfast.counts c
                WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND NOT c.parked
                    AND c.part = q.queue AND c.tenant NOT IN (SELECT u.tenant
                        FROM unnest(changes) u)
                ORDER BY c.tenant_turn LIMIT 100
            ) l JOIN holdfast.counts t ON t.kind = 'tenant' AND t.tenant = l.tenant AND t.part = ''
        ) l
    ), false);
END
$$;

-- How many tenants take turns in a queue.
CREATE OR REPLACE FUNCTION holdfast.count_tenants_in_queue(of_queue text) RETURNS bigint
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    changes holdfast.line_change[] := holdfast.line_changes();
BEGIN
    RETURN (
        SELECT count(*) FROM (
            SELECT u.tenant FROM unnest(changes) u WHERE u.queue = of_queue AND u.open AND u.has > 0
            UNION ALL
            SELECT c.tenant FROM holdfast.counts c
            WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND c.part = of_queue
                AND (c.tenant, c.part) NOT IN (SELECT u.tenant, u.queue FROM unnest(changes) u)
        ) l LEFT JOIN holdfast.counts t
            ON t.kind = 'tenant' AND t.tenant = l.tenant AND t.part = ''
        WHERE coalesce(t.open, true)
    );
END
$$;
