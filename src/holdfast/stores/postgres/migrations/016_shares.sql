-- Tenants take turns before their queues, a repeated claim is known, operators' acts are signed, and
-- each tenant has its share of names. layout.py says why.

SELECT holdfast.lock_claims();

-- == names ==

ALTER TABLE holdfast.events ADD COLUMN signed text;

-- Of a scope's settings: whose they are. Deleted ones count, since their versions are kept.
ALTER TABLE holdfast.settings ADD COLUMN tenant text COLLATE "C";
UPDATE holdfast.settings s SET tenant = left(m.found[2], m.found[1]::integer)
FROM (
    SELECT name, regexp_match(name, '^scope/[a-z]+/([0-9]+):(.*)$') AS found FROM holdfast.settings
) m
WHERE m.name = s.name AND m.found IS NOT NULL;
CREATE INDEX settings_tenant ON holdfast.settings (tenant) WHERE tenant IS NOT NULL;

-- Tenants that have as many queues or groups as they may have, counted now and then; and how many.
CREATE TABLE holdfast.crowded (
    tenant text COLLATE "C" PRIMARY KEY,
    queues bigint,
    groups bigint
);

-- Names tenants that are full, by counts that the caller has just folded.
CREATE FUNCTION holdfast.find_crowded(queues_max bigint, groups_max bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.crowded;
    INSERT INTO holdfast.crowded
    SELECT c.tenant, CASE WHEN c.queues >= queues_max THEN queues_max END,
        CASE WHEN c.groups >= groups_max THEN groups_max END
    FROM holdfast.counts c
    WHERE c.kind = 'tenant' AND (c.queues >= queues_max OR c.groups >= groups_max);
END
$$;

-- Of these jobs those that would give a full tenant one queue or group more.
CREATE FUNCTION holdfast.too_many(
    tenants text[], ids text[], queues text[], groups text[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(
            u.n::integer, 'many', u.id, f.what, NULL, NULL,
            CASE f.what WHEN 'queues' THEN c.queues ELSE c.groups END
        )::holdfast.answer
        FROM unnest(tenants, ids, queues, groups) WITH ORDINALITY AS u(tenant, id, queue, part, n)
        JOIN holdfast.crowded c ON c.tenant = u.tenant
        CROSS JOIN LATERAL (
            SELECT 'queues' AS what WHERE c.queues IS NOT NULL
                AND NOT holdfast.is_counted('queue', u.tenant, u.queue)
            UNION ALL
            SELECT 'groups' WHERE c.groups IS NOT NULL AND u.part IS NOT NULL
                AND NOT holdfast.is_counted('group', u.tenant, u.part)
            LIMIT 1
        ) f
    );
END
$$;

-- Whether a queue or group has jobs, as far as counts know.
CREATE FUNCTION holdfast.is_counted(of_kind text, of_tenant text, of_part text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.counts c
        WHERE c.kind = of_kind AND c.tenant = of_tenant AND c.part = of_part
    ) OR EXISTS (
        SELECT FROM holdfast.deltas d
        WHERE d.txid >= (SELECT floor FROM holdfast.heads) AND d.tenant = of_tenant
            AND CASE of_kind WHEN 'queue' THEN d.queue ELSE d.group_name END = of_part
    );
END
$$;

-- == sleepers ==

-- Jobs whose end somebody waits for: only these are told by name when they end. A hint, so nothing
-- is lost with it, and it needs no log.
CREATE UNLOGGED TABLE holdfast.waiters (
    tenant text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE FUNCTION holdfast.wait_for(of_tenant text, of_id text, seconds double precision)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.waiters AS w
    VALUES (of_tenant, of_id, clock_timestamp() + seconds * interval '1 second')
    ON CONFLICT (tenant, id) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until;
END
$$;

-- Tells other processes that these jobs may have ended, as far as anybody waits for them.
CREATE FUNCTION holdfast.tell_ended(
    tenants text[], ids text[], channel text, sender text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended jsonb;
BEGIN
    IF channel IS NULL OR NOT EXISTS (SELECT FROM holdfast.waiters) THEN
        RETURN;
    END IF;
    SELECT jsonb_agg(jsonb_build_array(w.tenant, w.id)) INTO ended
    FROM unnest(tenants, ids) AS u(tenant, id)
    JOIN holdfast.waiters w ON w.tenant = u.tenant AND w.id = u.id
    WHERE w.until > clock_timestamp();
    IF ended IS NOT NULL THEN
        PERFORM pg_notify(channel, CASE
            WHEN octet_length(ended::text) < 7900
            THEN jsonb_build_array(sender, '[]'::jsonb, ended)::text ELSE '*' END);
    END IF;
END
$$;

-- == whose turn it is ==

ALTER TABLE holdfast.counts
    ADD COLUMN lines  bigint  NOT NULL DEFAULT 0,
    ADD COLUMN queues bigint  NOT NULL DEFAULT 0,
    ADD COLUMN groups bigint  NOT NULL DEFAULT 0,
    ADD COLUMN ring   bigint  NOT NULL DEFAULT 0,
    ADD COLUMN parked boolean NOT NULL DEFAULT false;
ALTER TABLE holdfast.deltas ADD COLUMN turned boolean NOT NULL DEFAULT false;
ALTER TABLE holdfast.heads ADD COLUMN repeat_floor bigint NOT NULL DEFAULT 0;

DROP INDEX holdfast.lines_turn;
DROP INDEX holdfast.lines_open;
CREATE INDEX tenants_turn ON holdfast.counts (turn) WHERE kind = 'tenant' AND open AND lines > 0;
CREATE INDEX lines_turn ON holdfast.counts (tenant, turn)
    WHERE kind = 'queue' AND open AND enqueued > blocked;
CREATE INDEX lines_ring ON holdfast.counts (part, ring)
    WHERE kind = 'queue' AND open AND enqueued > blocked AND NOT parked;
CREATE INDEX lines_closed ON holdfast.counts (tenant) WHERE kind = 'queue' AND NOT open;
CREATE INDEX lines_parked ON holdfast.counts (tenant) WHERE kind = 'queue' AND parked;

-- Counts the lines, queues and groups of every tenant anew.
CREATE FUNCTION holdfast.count_lines() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holdfast.counts t SET lines = f.lines, queues = f.queues, groups = f.groups
    FROM (
        SELECT c.tenant, count(*) FILTER (WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked)
                AS lines,
            count(*) FILTER (WHERE c.kind = 'queue') AS queues,
            count(*) FILTER (WHERE c.kind = 'group') AS groups
        FROM holdfast.counts c GROUP BY c.tenant
    ) f
    WHERE t.kind = 'tenant' AND t.tenant = f.tenant
        AND (t.lines, t.queues, t.groups) <> (f.lines, f.queues, f.groups);
END
$$;

-- From here on a line is open as its queue's settings say, and a tenant as its own say: the next
-- claim looks at all of them.
UPDATE holdfast.counts SET open = true, credit = 0;
UPDATE holdfast.deltas SET credit = NULL WHERE credit IS NOT NULL;
UPDATE holdfast.counts t SET turn = coalesce((
    SELECT min(c.turn) FROM holdfast.counts c WHERE c.kind = 'queue' AND c.tenant = t.tenant
), 0) WHERE t.kind = 'tenant';
SELECT holdfast.count_lines();
UPDATE holdfast.counts c SET ring = t.turn FROM holdfast.counts t
WHERE c.kind = 'queue' AND t.kind = 'tenant' AND t.tenant = c.tenant AND t.part = '';
INSERT INTO holdfast.deltas (tenant) SELECT tenant FROM holdfast.ruled;

DROP FUNCTION holdfast.claim(
    text, text, integer, bigint, text[], text[], text[], bigint, boolean, boolean, text, integer,
    integer, integer
);
DROP FUNCTION holdfast.lines(text[], text[], bigint, text[], text[]);
DROP FUNCTION holdfast.take_line(
    bigint[], integer, text, text, bigint, text, text, bigint, bigint, boolean
);
DROP FUNCTION holdfast.take(
    bigint[], integer, text[], text[], bigint[], text, text, bigint, bigint, boolean
);
DROP FUNCTION holdfast.take_packed(
    bigint[], integer[], integer[], bigint, text, text, bigint, bigint, boolean
);
DROP FUNCTION holdfast.pick_ruled(
    text, text, bigint, bigint, bigint, text[], bigint, jsonb
);
DROP FUNCTION holdfast.fold_in_time();
DROP TYPE holdfast.news;
ALTER TYPE holdfast.line DROP ATTRIBUTE credit;

-- A line that deltas name: what it has by now, whether it counts among its tenant's lines yet, and
-- what these deltas say of its tenant.
CREATE TYPE holdfast.told AS (
    tenant text, queue text, has bigint, stood boolean, open boolean, turn bigint, low_rank bigint,
    low_seq bigint, came bigint, turned bigint, credit_at bigint, credit bigint
);

-- A tenant that can be claimed from: when it got its place, and what is left of a turn that a full
-- claim cut short.
CREATE TYPE holdfast.turn AS (tenant text, turn bigint, credit bigint);

-- What deltas say. Stable, so that it sees what its caller's statement sees.
CREATE FUNCTION holdfast.told() RETURNS holdfast.told[] LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    low xid8 := (SELECT floor FROM holdfast.heads);
BEGIN
    RETURN ARRAY(
        SELECT (
            d.tenant, d.queue, coalesce(c.enqueued - c.blocked, 0) + d.has,
            coalesce(c.open AND c.enqueued > c.blocked, false), coalesce(c.open, true),
            CASE WHEN coalesce(c.enqueued > c.blocked, false) THEN greatest(c.turn, d.turn)
                ELSE coalesce(greatest(d.turn, d.came), c.turn, 0) END,
            first.rank, first.seq, d.came, d.turned, d.credits[1], d.credits[2]
        )::holdfast.told
        FROM (
            SELECT x.tenant, x.queue, sum(x.enqueued - x.blocked) AS has,
                min(x.id) FILTER (WHERE x.enqueued > x.blocked) AS came,
                max(x.id) FILTER (WHERE x.served) AS turn, max(x.id) FILTER (WHERE x.turned) AS turned,
                max(ARRAY[x.id, x.credit]) FILTER (WHERE x.credit IS NOT NULL) AS credits,
                min(x.head_rank) AS head_rank, min(x.head_seq) AS head_seq
            FROM holdfast.deltas x WHERE x.txid >= low AND x.queue IS NOT NULL
            GROUP BY x.tenant, x.queue
        ) d
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
        ) first
    );
END
$$;

-- Whether a tenant has an open line in one of these queues that deltas do not name.
CREATE FUNCTION holdfast.has_untold(of_tenant text, in_queues text[], told holdfast.told[])
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM unnest(in_queues) AS q(queue)
        JOIN holdfast.counts c ON c.kind = 'queue' AND c.tenant = of_tenant AND c.part = q.queue
        WHERE c.open AND c.enqueued > c.blocked AND NOT EXISTS (
            SELECT FROM unnest(told) u WHERE u.tenant = of_tenant AND u.queue = q.queue
        )
    );
END
$$;

-- The tenants that deltas name and that can be claimed from. A line that gave less to this claim
-- than it has (`dry`) was told by the claim itself, so all of them are named.
CREATE FUNCTION holdfast.turns_told(
    told holdfast.told[], in_tenants text[], in_queues text[], dry_tenants text[], dry_queues text[]
) RETURNS SETOF holdfast.turn LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT t.tenant, CASE WHEN coalesce(c.lines, 0) > 0 THEN greatest(c.turn, t.turned)
            ELSE coalesce(greatest(t.turned, t.came), c.turn, 0) END,
        coalesce(t.credits[2], c.credit, 0)
    FROM (
        SELECT u.tenant, min(u.came) AS came, max(u.turned) AS turned,
            max(ARRAY[u.credit_at, u.credit]) FILTER (WHERE u.credit IS NOT NULL) AS credits,
            count(*) FILTER (WHERE u.stood) AS stood, bool_or(
                u.open AND u.has > 0 AND (in_queues IS NULL OR u.queue = ANY (in_queues))
                AND (u.tenant, u.queue) NOT IN (
                    SELECT d.tenant, d.queue FROM unnest(dry_tenants, dry_queues) AS d(tenant, queue)
                )
            ) AS has
        FROM unnest(told) u WHERE in_tenants IS NULL OR u.tenant = ANY (in_tenants)
        GROUP BY u.tenant
    ) t
    LEFT JOIN LATERAL (
        SELECT * FROM holdfast.counts x
        WHERE x.kind = 'tenant' AND x.tenant = t.tenant AND x.part = '' LIMIT 1
    ) c ON true
    WHERE coalesce(c.open, true) AND (t.has OR coalesce(c.lines, 0) > t.stood AND (
        in_queues IS NULL OR holdfast.has_untold(t.tenant, in_queues, told)
    ));
END
$$;

-- The first tenants that deltas do not name and that have an open line in a queue, by its ring: the
-- number there is their turn of some time, never a later one. What is met at the head and is out of
-- date is put right, lines of closed tenants are parked, so what is right at the head is first.
CREATE FUNCTION holdfast.turns_of_queue(told holdfast.told[], of_queue text, most bigint)
RETURNS SETOF holdfast.turn LANGUAGE plpgsql AS $$
DECLARE
    mended bigint;
    seen bigint := most;
    fixed bigint := 0;
    found holdfast.turn[];
BEGIN
    LOOP
        WITH near AS MATERIALIZED (
            SELECT l.tenant, l.ring, t.turn, t.credit, coalesce(t.open, true) AS open FROM (
                SELECT c.tenant, c.ring FROM holdfast.counts c
                WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND NOT c.parked
                    AND c.part = of_queue
                    AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
                ORDER BY c.ring LIMIT seen
            ) l CROSS JOIN LATERAL (
                SELECT x.turn, x.credit, x.open FROM holdfast.counts x
                WHERE x.kind = 'tenant' AND x.tenant = l.tenant AND x.part = '' LIMIT 1
            ) t
        ), mended AS (
            UPDATE holdfast.counts c SET ring = n.turn, parked = NOT n.open FROM near n
            WHERE c.kind = 'queue' AND c.tenant = n.tenant AND c.part = of_queue
                AND (n.ring <> n.turn OR NOT n.open)
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM mended),
            array_agg((n.tenant, n.turn, n.credit)::holdfast.turn) FILTER (WHERE n.open)
        INTO mended, found FROM near n;
        -- Where very many are out of date, this claim takes what it has, and the next ones go on.
        fixed := fixed + mended;
        EXIT WHEN mended = 0 OR (fixed >= 5000 AND cardinality(found) > 0);
        seen := least(2 * seen, 1000);
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(found);
END
$$;

-- Tenants that can be claimed from, the first ones in the order of their turns among them, but not
-- in order and more than asked for. Those that deltas name are worked out, all others are read by
-- their index. The caller has the lock of claims.
CREATE FUNCTION holdfast.turns(
    told holdfast.told[], in_tenants text[], in_queues text[], most bigint, dry_tenants text[],
    dry_queues text[]
) RETURNS SETOF holdfast.turn LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM holdfast.turns_told(told, in_tenants, in_queues, dry_tenants, dry_queues);
    IF in_tenants IS NOT NULL THEN
        RETURN QUERY
        SELECT c.tenant, c.turn, c.credit
        FROM (SELECT DISTINCT u.tenant FROM unnest(in_tenants) AS u(tenant)) t
        CROSS JOIN LATERAL (
            SELECT * FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = t.tenant AND x.part = '' LIMIT 1
        ) c
        WHERE c.open AND c.lines > 0 AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
            AND (in_queues IS NULL OR holdfast.has_untold(c.tenant, in_queues, told));
    ELSIF in_queues IS NOT NULL THEN
        RETURN QUERY
        SELECT DISTINCT f.tenant, f.turn, f.credit
        FROM (SELECT DISTINCT u.queue FROM unnest(in_queues) AS u(queue)) q
        CROSS JOIN LATERAL holdfast.turns_of_queue(told, q.queue, most) f;
    ELSE
        RETURN QUERY
        SELECT c.tenant, c.turn, c.credit FROM holdfast.counts c
        WHERE c.kind = 'tenant' AND c.open AND c.lines > 0
            AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
        ORDER BY c.turn LIMIT most;
    END IF;
END
$$;

-- Whether there is anything to claim. Looks at a few lines of a queue at most: should they all be
-- of closed tenants, the answer is yes, and the claim parks them.
CREATE FUNCTION holdfast.any_turn(in_tenants text[], in_queues text[]) RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    told holdfast.told[] := holdfast.told();
BEGIN
    IF EXISTS (SELECT FROM holdfast.turns_told(told, in_tenants, in_queues, '{}', '{}')) THEN
        RETURN true;
    ELSIF in_tenants IS NOT NULL OR in_queues IS NULL THEN
        RETURN EXISTS (
            SELECT FROM holdfast.counts c
            WHERE c.kind = 'tenant' AND c.open AND c.lines > 0 AND in_tenants IS NULL
                AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
        ) OR EXISTS (
            SELECT FROM unnest(in_tenants) AS t(tenant)
            JOIN holdfast.counts c ON c.kind = 'tenant' AND c.tenant = t.tenant AND c.part = ''
            WHERE c.open AND c.lines > 0 AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
                AND (in_queues IS NULL OR holdfast.has_untold(c.tenant, in_queues, told))
        );
    END IF;
    RETURN coalesce((
        SELECT bool_or(l.open) OR max(l.number) = 100
        FROM unnest(in_queues) AS q(queue) CROSS JOIN LATERAL (
            SELECT bool_or(coalesce(t.open, true)) AS open, count(*) AS number FROM (
                SELECT c.tenant FROM holdfast.counts c
                WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND NOT c.parked
                    AND c.part = q.queue AND c.tenant NOT IN (SELECT u.tenant FROM unnest(told) u)
                ORDER BY c.ring LIMIT 100
            ) l JOIN holdfast.counts t ON t.kind = 'tenant' AND t.tenant = l.tenant AND t.part = ''
        ) l
    ), false);
END
$$;

-- How many tenants take turns in a queue.
CREATE FUNCTION holdfast.waiting(of_queue text) RETURNS bigint LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    told holdfast.told[] := holdfast.told();
BEGIN
    RETURN (
        SELECT count(*) FROM (
            SELECT u.tenant FROM unnest(told) u WHERE u.queue = of_queue AND u.open AND u.has > 0
            UNION ALL
            SELECT c.tenant FROM holdfast.counts c
            WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND c.part = of_queue
                AND (c.tenant, c.part) NOT IN (SELECT u.tenant, u.queue FROM unnest(told) u)
        ) l LEFT JOIN holdfast.counts t
            ON t.kind = 'tenant' AND t.tenant = l.tenant AND t.part = ''
        WHERE coalesce(t.open, true)
    );
END
$$;

-- The first lines of these tenants, so many of each, in the order of their turns.
CREATE FUNCTION holdfast.lines_of(
    told holdfast.told[], of_tenants text[], mosts bigint[], in_queues text[], dry_tenants text[],
    dry_queues text[], OUT place integer, OUT line holdfast.line
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT f.place, (f.tenant, f.queue, f.has, f.turn, f.low_rank, f.low_seq)::holdfast.line FROM (
        SELECT w.place::integer AS place, w.most, l.tenant, l.queue, l.has, l.turn, l.low_rank,
            l.low_seq, row_number() OVER (PARTITION BY w.place ORDER BY l.turn, l.queue) AS n
        FROM unnest(of_tenants, mosts) WITH ORDINALITY AS w(tenant, most, place) JOIN (
            SELECT u.tenant, u.queue, u.has, u.turn, u.low_rank, u.low_seq FROM unnest(told) u
            WHERE u.open AND u.has > 0 AND (in_queues IS NULL OR u.queue = ANY (in_queues))
                AND (u.tenant, u.queue) NOT IN (
                    SELECT d.tenant, d.queue FROM unnest(dry_tenants, dry_queues) AS d(tenant, queue)
                )
            UNION ALL
            SELECT s.* FROM unnest(of_tenants, mosts) AS t(tenant, most) CROSS JOIN LATERAL (
                SELECT c.tenant, c.part, c.enqueued - c.blocked, c.turn,
                    coalesce(c.floor_rank, -9223372036854775808), coalesce(c.floor_seq, 0)
                FROM holdfast.counts c
                WHERE in_queues IS NULL AND c.kind = 'queue' AND c.open AND c.enqueued > c.blocked
                    AND c.tenant = t.tenant
                    AND (c.tenant, c.part) NOT IN (SELECT u.tenant, u.queue FROM unnest(told) u)
                ORDER BY c.turn LIMIT t.most
            ) s
            UNION ALL
            SELECT c.tenant, c.part, c.enqueued - c.blocked, c.turn,
                coalesce(c.floor_rank, -9223372036854775808), coalesce(c.floor_seq, 0)
            FROM unnest(of_tenants) AS t(tenant)
            CROSS JOIN (SELECT DISTINCT q.queue FROM unnest(in_queues) AS q(queue)) q
            JOIN holdfast.counts c ON c.kind = 'queue' AND c.tenant = t.tenant AND c.part = q.queue
            WHERE c.open AND c.enqueued > c.blocked
                AND (c.tenant, c.part) NOT IN (SELECT u.tenant, u.queue FROM unnest(told) u)
        ) l ON l.tenant = w.tenant
    ) f WHERE f.n <= f.most ORDER BY f.place, f.n;
END
$$;

CREATE OR REPLACE FUNCTION holdfast.soonest(
    in_tenants text[], in_queues text[], given_now bigint
) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    head bigint;
    low record;
BEGIN
    IF holdfast.any_turn(in_tenants, in_queues) OR holdfast.unlooked() THEN
        RETURN 0;
    END IF;
    SELECT * INTO low FROM holdfast.floors();
    SELECT least(
        (SELECT run_at FROM holdfast.due WHERE run_at >= low.due ORDER BY run_at LIMIT 1),
        (
            SELECT until FROM holdfast.leases WHERE NOT spent AND until >= low.held
            ORDER BY until LIMIT 1
        ),
        (SELECT at FROM holdfast.reopen ORDER BY at LIMIT 1)
    ) INTO head;
    RETURN CASE WHEN head IS NULL THEN 3600000000 ELSE greatest(0, head - now) END;
END
$$;

-- Adds what has changed to the counts. The caller has the lock of claims.
CREATE OR REPLACE FUNCTION holdfast.fold(most integer) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off SET enable_material = off AS $$
DECLARE
    low xid8;
    lines record;
    seen pg_snapshot;
    number bigint;
BEGIN
    SELECT floor, holdfast.last_look() INTO low, seen FROM holdfast.heads;
    WITH gone AS (
        DELETE FROM holdfast.deltas WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM holdfast.deltas WHERE txid >= low ORDER BY txid LIMIT most
        ))
        RETURNING *
    ), scoped AS (
        SELECT 'queue' AS kind, tenant, queue AS part, waiting, scheduled, enqueued, processing,
            retrying, completed, failed, canceled, 0 AS bytes, blocked, id,
            enqueued > blocked AS comes, served, NULL::integer AS credit, head_rank, head_seq
        FROM gone WHERE queue IS NOT NULL
        UNION ALL
        SELECT 'tenant', tenant, '', waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, 0, id, enqueued > blocked, turned, credit, NULL, NULL
        FROM gone WHERE queue IS NOT NULL
        UNION ALL
        SELECT 'group', tenant, group_name, waiting, scheduled, enqueued, processing, retrying,
            completed, failed, canceled, 0, 0, id, false, false, NULL, NULL, NULL
        FROM gone WHERE queue IS NOT NULL AND group_name IS NOT NULL
    ), summed AS (
        SELECT kind, tenant, part, sum(waiting) AS waiting, sum(scheduled) AS scheduled,
            sum(enqueued) AS enqueued, sum(processing) AS processing, sum(retrying) AS retrying,
            sum(completed) AS completed, sum(failed) AS failed, sum(canceled) AS canceled,
            sum(bytes) AS bytes, sum(blocked) AS blocked,
            min(id) FILTER (WHERE comes) AS came,
            max(id) FILTER (WHERE served) AS turn,
            (max(ARRAY[id, credit]) FILTER (WHERE credit IS NOT NULL))[2] AS credit,
            min(head_rank) AS head_rank, min(head_seq) AS head_seq
        FROM scoped GROUP BY kind, tenant, part
    -- Not one upsert: what it needs besides the new row it would have to search for, row by row.
    ), changed AS (
        UPDATE holdfast.counts c SET
            waiting = c.waiting + s.waiting, scheduled = c.scheduled + s.scheduled,
            enqueued = c.enqueued + s.enqueued, processing = c.processing + s.processing,
            retrying = c.retrying + s.retrying, completed = c.completed + s.completed,
            failed = c.failed + s.failed, canceled = c.canceled + s.canceled,
            bytes = c.bytes + s.bytes, blocked = c.blocked + s.blocked,
            -- What comes up goes to the end, a line among its tenant's and a tenant among all; so
            -- does what was served.
            turn = CASE WHEN CASE c.kind WHEN 'tenant' THEN c.lines > 0 ELSE c.enqueued > c.blocked END
                THEN greatest(c.turn, s.turn) ELSE coalesce(greatest(s.turn, s.came), c.turn) END,
            credit = coalesce(s.credit, c.credit)
        FROM summed s WHERE c.kind = s.kind AND c.tenant = s.tenant AND c.part = s.part
        RETURNING c.kind, c.tenant, c.part,
            CASE WHEN c.kind = 'queue' AND c.open THEN (c.enqueued > c.blocked)::integer
                - (c.enqueued - s.enqueued > c.blocked - s.blocked)::integer ELSE 0 END AS stands
    ), written AS (
        INSERT INTO holdfast.counts
        SELECT kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, true, coalesce(greatest(turn, came), 0),
            coalesce(credit, 0), 9223372036854775807, 9223372036854775807
        FROM summed s
        WHERE (s.kind, s.tenant, s.part) NOT IN (SELECT x.kind, x.tenant, x.part FROM changed x)
        RETURNING kind, tenant, part, enqueued > blocked AS stands
    ), touched AS (
        -- Who looks at scopes must hear of these still.
        INSERT INTO holdfast.deltas (tenant, group_name)
        SELECT DISTINCT g.tenant, g.group_name
        FROM gone g JOIN holdfast.ruled r ON r.tenant = g.tenant
        WHERE NOT pg_visible_in_snapshot(g.txid, seen)
    ), stands AS (
        SELECT t.tenant, sum(t.stands) AS number, sum(t.queues) AS queues, sum(t.groups) AS groups
        FROM (
            SELECT x.tenant, x.stands, 0 AS queues, 0 AS groups FROM changed x WHERE x.stands <> 0
            UNION ALL
            SELECT x.tenant, (x.kind = 'queue' AND x.stands)::integer, (x.kind = 'queue')::integer,
                (x.kind = 'group')::integer FROM written x WHERE x.kind <> 'tenant'
        ) t GROUP BY t.tenant
    ), comes AS (
        SELECT x.tenant, x.part FROM changed x WHERE x.stands > 0
        UNION ALL
        SELECT x.tenant, x.part FROM written x WHERE x.kind = 'queue' AND x.stands
    )
    SELECT (SELECT count(*) FROM gone) AS number,
        pg_snapshot_xmin(pg_current_snapshot()) AS horizon, (SELECT min(due) FROM gone) AS due,
        (SELECT min(held) FROM gone) AS held,
        array_agg(s.tenant) AS tenants, array_agg(s.part) AS queues,
        array_agg(s.head_rank) AS ranks, array_agg(s.head_seq) AS seqs,
        (SELECT array_agg(x.tenant ORDER BY x.tenant) FROM stands x) AS standing,
        (SELECT array_agg(x.number ORDER BY x.tenant) FROM stands x) AS numbers,
        (SELECT array_agg(x.queues ORDER BY x.tenant) FROM stands x) AS more_queues,
        (SELECT array_agg(x.groups ORDER BY x.tenant) FROM stands x) AS more_groups,
        (SELECT array_agg(x.tenant ORDER BY x.tenant, x.part) FROM comes x) AS come_tenants,
        (SELECT array_agg(x.part ORDER BY x.tenant, x.part) FROM comes x) AS come_queues
    INTO lines FROM summed s WHERE s.kind = 'queue';
    number := lines.number;
    UPDATE holdfast.counts c SET lines = c.lines + u.number, queues = c.queues + u.queues,
        groups = c.groups + u.groups
    FROM unnest(lines.standing, lines.numbers, lines.more_queues, lines.more_groups)
        AS u(tenant, number, queues, groups)
    WHERE c.kind = 'tenant' AND c.tenant = u.tenant AND c.part = '';
    -- Lines that come up have the turn of their tenant as it is by now.
    UPDATE holdfast.counts c SET ring = t.turn
    FROM unnest(lines.come_tenants, lines.come_queues) AS u(tenant, queue) CROSS JOIN LATERAL (
        SELECT x.turn FROM holdfast.counts x
        WHERE x.kind = 'tenant' AND x.tenant = u.tenant AND x.part = '' LIMIT 1
    ) t
    WHERE c.kind = 'queue' AND c.tenant = u.tenant AND c.part = u.queue AND c.ring <> t.turn;
    IF number >= 10000 THEN
        ANALYZE holdfast.counts;  -- So that the planner knows before autovacuum comes around.
    END IF;
    UPDATE holdfast.heads SET mark = seen, folded_at = clock_timestamp(),
        floor = CASE WHEN number < most THEN lines.horizon ELSE floor END;
    PERFORM holdfast.raise_floors(
        lines.tenants, lines.queues, lines.ranks, lines.seqs, lines.due, lines.held
    );
    RETURN number;
END
$$;

-- Folds when it is time to: about once a second, or when there is much. True when it did.
CREATE FUNCTION holdfast.fold_in_time() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
    old boolean;
    began timestamptz := clock_timestamp();
BEGIN
    SELECT h.folded_at < clock_timestamp() - interval '1 second', (
        SELECT count(*) FROM (
            SELECT 1 FROM holdfast.deltas d WHERE d.txid >= h.floor LIMIT 1001
        ) unfolded
    ) INTO old, number FROM holdfast.heads h;
    IF number > 1000 OR (old AND number > 0) THEN
        -- All of them, for what is left costs every look at the lines; but no claim shall take so
        -- long that its caller gives up, which would undo it.
        FOR pass IN 1..100 LOOP
            EXIT WHEN holdfast.fold(10000) < 10000
                OR clock_timestamp() > began + interval '2 seconds';
        END LOOP;
        RETURN true;
    END IF;
    RETURN false;
END
$$;

-- Opens and closes a tenant, and those of its lines whose queues have settings.
CREATE OR REPLACE FUNCTION holdfast.refresh_tenant(of_tenant text, now bigint, more jsonb)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    whole record;
    its record;
    line record;
    was boolean;
    is_open boolean;
    shift bigint := 0;
    new bigint := 0;
    rings boolean := false;
BEGIN
    SELECT * INTO whole FROM holdfast.scope_room('tenant', of_tenant, '', now, more);
    IF whole.room = 0 THEN
        rings := holdfast.reopen_later('tenant', of_tenant, '', whole.opens_at);
    END IF;
    is_open := whole.room > 0;
    SELECT c.open INTO was FROM holdfast.counts c
    WHERE c.kind = 'tenant' AND c.tenant = of_tenant AND c.part = '';
    IF is_open <> coalesce(was, true) THEN
        INSERT INTO holdfast.counts (kind, tenant, part, open, turn)
        VALUES ('tenant', of_tenant, '', is_open, nextval('holdfast.turns'))
        ON CONFLICT (kind, tenant, part)
        DO UPDATE SET open = excluded.open, turn = excluded.turn, credit = 0;
        UPDATE holdfast.counts c SET parked = false
        WHERE is_open AND c.kind = 'queue' AND c.parked AND c.tenant = of_tenant;
    END IF;
    FOR line IN
        SELECT s.part AS queue, coalesce(c.open, true) AS open, c.kind IS NULL AS is_new,
            coalesce(c.enqueued > c.blocked, false) AS stands
        FROM holdfast.scopes s LEFT JOIN holdfast.counts c
            ON c.kind = 'queue' AND c.tenant = s.tenant AND c.part = s.part
        WHERE s.kind = 'queue' AND s.tenant = of_tenant AND (c.kind IS NOT NULL OR EXISTS (
            SELECT FROM holdfast.deltas d
            WHERE d.txid >= (SELECT floor FROM holdfast.heads)
                AND d.tenant = of_tenant AND d.queue = s.part
        ))
        UNION
        SELECT c.part, c.open, false, c.enqueued > c.blocked FROM holdfast.counts c
        WHERE c.kind = 'queue' AND NOT c.open AND c.tenant = of_tenant
    LOOP
        SELECT * INTO its FROM holdfast.scope_room('queue', of_tenant, line.queue, now, more);
        IF its.room = 0 THEN
            rings := holdfast.reopen_later('queue', of_tenant, line.queue, its.opens_at) OR rings;
        END IF;
        is_open := its.room > 0;
        IF is_open <> line.open THEN
            INSERT INTO holdfast.counts (kind, tenant, part, open, turn, floor_rank, floor_seq)
            VALUES ('queue', of_tenant, line.queue, is_open, nextval('holdfast.turns'),
                9223372036854775807, 9223372036854775807)
            ON CONFLICT (kind, tenant, part)
            DO UPDATE SET open = excluded.open, turn = excluded.turn;
            shift := shift
                + CASE WHEN NOT line.stands THEN 0 WHEN is_open THEN 1 ELSE -1 END;
            new := new + line.is_new::integer;
        END IF;
    END LOOP;
    IF shift <> 0 OR new <> 0 THEN
        INSERT INTO holdfast.counts AS c (kind, tenant, part, lines, queues, turn)
        VALUES ('tenant', of_tenant, '', shift, new, nextval('holdfast.turns'))
        ON CONFLICT (kind, tenant, part) DO UPDATE SET lines = c.lines + shift,
            queues = c.queues + new,
            turn = CASE WHEN c.lines = 0 AND shift > 0 THEN excluded.turn ELSE c.turn END;
    END IF;
    RETURN rings;
END
$$;

-- == claims that are repeated ==

-- The jobs of each claim of the last minute, by its nonce.
CREATE TABLE holdfast.claims (
    nonce text COLLATE "C" PRIMARY KEY,
    until bigint   NOT NULL,
    seqs  bigint[] NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX claims_until ON holdfast.claims (until);

-- Forgets claims whose time is over, from where it stopped the last time.
CREATE FUNCTION holdfast.forget_claims(now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (SELECT repeat_floor FROM holdfast.heads);
    last bigint;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.claims WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM holdfast.claims c WHERE c.until >= low AND c.until <= now
            ORDER BY c.until LIMIT 10000
        ))
        RETURNING until
    )
    SELECT max(until) INTO last FROM gone;
    UPDATE holdfast.heads SET repeat_floor = last WHERE last IS NOT NULL;
    DELETE FROM holdfast.waiters WHERE until < clock_timestamp() - interval '1 minute';
END
$$;

CREATE OR REPLACE FUNCTION holdfast.instant_in_order(given bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    now bigint := holdfast.instant(given);
    last bigint;
BEGIN
    SELECT last_value INTO last FROM holdfast.instants;
    IF last > now AND last - now < 10000000 THEN
        RETURN last;
    END IF;
    IF last > now THEN
        UPDATE holdfast.heads SET held_floor = 0, due_floor = 0, repeat_floor = 0;
    END IF;
    PERFORM setval('holdfast.instants', now);
    RETURN now;
END
$$;

-- The leases of a claim that still hold, as `claim` gives them.
CREATE FUNCTION holdfast.leased_again(of_nonce text, of_seqs bigint[], now bigint)
RETURNS SETOF holdfast.leased LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT 1, j.tenant, j.id, j.queue, j.type, j.codec, j.version, j.payload, j.rules, j.priority,
        j.key, j.group_name, j.tags, j.origin, j.seq, j.attempt, j.fence, j.lapses, j.misses,
        j.created_at, j.updated_at, j.run_at, j.expires_at, j.lease_until, j.reason, j.error,
        NULL::text[], NULL::bytea[]
    FROM (
        SELECT x.* FROM holdfast.jobs x WHERE x.seq = ANY (of_seqs)
        UNION ALL
        SELECT m.* FROM holdfast.pieces p CROSS JOIN LATERAL holdfast.members(p) m
        WHERE p.seq = ANY (holdfast.pieces_of(of_seqs)) AND p.nonce = of_nonce
    ) j
    WHERE j.state = 'processing' AND j.lease_until > now AND j.token = of_nonce || '.' || j.seq;
END
$$;

-- == claim ==

-- The first jobs of a line whose tenant has settings, but for those that were picked already: within
-- the room of its scopes. Jobs whose groups have none after all step back.
CREATE FUNCTION holdfast.pick_ruled(
    of_tenant text, of_queue text, wanted bigint, low_rank bigint, low_seq bigint,
    excluded text[], now bigint, before bigint[], INOUT more jsonb, OUT picked bigint[],
    OUT allowed bigint
) LANGUAGE plpgsql AS $$
DECLARE
    grouped boolean;
    gate record;
    job record;
    back bigint[];
    starts boolean;
BEGIN
    picked := '{}';
    SELECT least(
        wanted,
        (SELECT r.room FROM holdfast.scope_room('tenant', of_tenant, '', now, more) r),
        (SELECT r.room FROM holdfast.scope_room('queue', of_tenant, of_queue, now, more) r)
    ), coalesce((SELECT r.grouped FROM holdfast.ruled r WHERE r.tenant = of_tenant), false)
    INTO allowed, grouped;
    WHILE cardinality(picked) < allowed LOOP
        back := '{}';
        FOR job IN
            SELECT r.seq, r.group_name FROM holdfast.ready r CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs j
                WHERE j.seq = r.seq AND j.state = 'enqueued' AND j.late = 0
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ) job
            WHERE r.gate = 0 AND r.queue = of_queue AND r.tenant = of_tenant
                AND (r.expires_at IS NULL OR r.expires_at > now)
                AND (r.group_name IS NULL OR NOT r.group_name = ANY (excluded))
                AND NOT r.seq = ANY (before || picked) AND (r.rank, r.seq) >= (low_rank, low_seq)
            ORDER BY r.rank, r.seq LIMIT allowed - cardinality(picked)
        LOOP
            IF NOT grouped OR job.group_name IS NULL THEN
                picked := picked || job.seq;
                CONTINUE;
            END IF;
            SELECT * INTO gate FROM holdfast.group_gate(of_tenant, job.group_name, of_queue);
            starts := gate.open;
            IF NOT starts THEN
                SELECT r.room > 0 INTO starts FROM holdfast.room(
                    'group', of_tenant, job.group_name, gate.max_running, gate.price_us, gate.burst,
                    gate.paused, gate.slots_count, now, more
                ) r;
            END IF;
            IF starts THEN
                picked := picked || job.seq;
                PERFORM holdfast.spend('group', of_tenant, job.group_name, gate.price_us, 1, now);
                more := holdfast.started(
                    more, holdfast.scope_key('group', of_tenant, job.group_name), 1
                );
            ELSE
                back := back || job.seq;
            END IF;
        END LOOP;
        PERFORM holdfast.put_gate(back, 1::smallint);
        CONTINUE WHEN cardinality(back) > 0 OR cardinality(picked) = allowed;
        -- Fewer than there should be: once more from the very beginning, lest one be forgotten.
        EXIT WHEN low_rank = -9223372036854775808;
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
    IF cardinality(picked) > 0 THEN
        more := holdfast.started(
            more, holdfast.scope_key('tenant', of_tenant, ''), cardinality(picked)
        );
        more := holdfast.started(
            more, holdfast.scope_key('queue', of_tenant, of_queue), cardinality(picked)
        );
        PERFORM holdfast.spend('tenant', of_tenant, '', s.price_us, cardinality(picked), now)
        FROM holdfast.scopes s WHERE s.kind = 'tenant' AND s.tenant = of_tenant AND s.part = '';
        PERFORM holdfast.spend('queue', of_tenant, of_queue, s.price_us, cardinality(picked), now)
        FROM holdfast.scopes s
        WHERE s.kind = 'queue' AND s.tenant = of_tenant AND s.part = of_queue;
    END IF;
END
$$;

-- Leases these jobs, and counts and records it. The turns of the lines end; so does the turn of a
-- tenant whose first line has a credit of 0, and another credit is what is left of it.
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
            (tenant, queue, group_name, enqueued, processing, served, turned, credit, held)
        SELECT l.tenant, l.queue, s.group_name, -coalesce(s.number, 0), coalesce(s.number, 0),
            coalesce(s.place, 1) = 1, coalesce(s.place, 1) = 1 AND coalesce(l.credit = 0, false),
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

-- As `take`, for so many jobs from the front of each of these packs, which are of the lines with
-- these places: what is taken of a pack becomes a piece. The turns are `take`'s to note.
CREATE FUNCTION holdfast.take_packed(
    of_packs bigint[], numbers integer[], visits integer[], for_worker text,
    nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.leased LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        -- Somebody with an old snapshot took an id that is in the pack; see `open_packs`.
        SELECT FROM unnest(of_packs, numbers) AS u(pack, wanted)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.packs x WHERE x.seq = u.pack LIMIT 1) p
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs j
            WHERE j.tenant = p.tenant AND j.id BETWEEN p.first_id AND p.last_id LIMIT 1
        ) near
        WHERE EXISTS (
            SELECT FROM unnest(p.ids[p.taken + 1:p.taken + u.wanted]) AS i(id) CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs j WHERE j.tenant = p.tenant AND j.id = i.id LIMIT 1
            ) same
        )
    ) THEN
        RAISE unique_violation;
    END IF;
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT u.visit, u.wanted, p.seq + p.taken AS head, p.rank, p.at, p.keep_us, p.version,
            p.max_attempts, p.tenant, p.queue, p.type, p.codec, p.rules,
            u.wanted = p.number AS whole, p.ids[p.taken + 1:p.taken + u.wanted] AS ids,
            p.payloads[p.taken + 1:p.taken + u.wanted] AS payloads
        FROM unnest(of_packs, numbers, visits) AS u(pack, wanted, visit)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.packs x WHERE x.seq = u.pack LIMIT 1) p
    ), taken AS (
        INSERT INTO holdfast.pieces
        SELECT c.head, c.rank, c.at, now, now + lease_us, c.keep_us, c.version, c.max_attempts,
            c.wanted, c.wanted, B'0'::bit(128), c.tenant, c.queue, c.type, c.codec, nonce,
            for_worker, c.ids[1], c.ids[c.wanted], c.rules, ARRAY(
                SELECT coalesce(octet_length(u.payload), 0) FROM unnest(c.payloads) AS u(payload)
            ), CASE WHEN NOT c.whole THEN c.ids END, CASE WHEN NOT c.whole THEN c.payloads END
        FROM chosen c
    ), held AS (
        -- A piece is named by its first job; see `rescue`.
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT now + lease_us, c.max_attempts <= 1, array_agg(c.head)
        FROM chosen c GROUP BY c.max_attempts <= 1
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'leased', t.tenant, t.ids[1], t.queue, t.type, 1, 1,
            now + lease_us, for_worker, t.wanted, t.ids[t.wanted], t.ids
        FROM (SELECT * FROM chosen c WHERE events ORDER BY c.visit, c.rank, c.head) t
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, enqueued, processing, held)
        SELECT c.tenant, c.queue, -sum(c.wanted), sum(c.wanted), now + lease_us
        FROM chosen c GROUP BY c.tenant, c.queue
    )
    SELECT c.visit, c.tenant, NULL::text, c.queue, c.type, c.codec, c.version, NULL::bytea, c.rules,
        -c.rank, NULL::text, NULL::text, NULL::text[], NULL::text, c.head, 1, 1, 0, 0, c.at, now,
        c.at, NULL::bigint, now + lease_us, NULL::text, NULL::text, c.ids, c.payloads
    FROM chosen c;
    -- Each by itself, for there are few. The last part of a pack takes it away; a whole one stays.
    FOR i IN 1..cardinality(of_packs) LOOP
        UPDATE holdfast.packs p SET taken = p.taken + numbers[i]
        WHERE p.seq = of_packs[i]
            AND (p.taken + numbers[i] < p.number OR p.number = numbers[i]);
        IF NOT FOUND THEN
            DELETE FROM holdfast.packs p WHERE p.seq = of_packs[i];
        END IF;
    END LOOP;
END
$$;

-- The first jobs of those of these lines that have neither settings nor packs, and how many each
-- gave.
CREATE FUNCTION holdfast.pick_lines(
    tenants text[], queues text[], asks bigint[], ranks bigint[], lows bigint[], ruled boolean[],
    packed boolean[], excluded text[], now bigint, OUT seqs bigint[], OUT numbers bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    asked record;
    pick record;
BEGIN
    SELECT array_agg(u.tenant) AS tenants, array_agg(u.queue) AS queues, array_agg(u.ask) AS asks,
        array_agg(u.n::integer) AS places, array_agg(u.rank) AS ranks, array_agg(u.low) AS lows,
        sum(u.ask) AS number
    INTO asked
    FROM unnest(tenants, queues, asks, ranks, lows, ruled, packed) WITH ORDINALITY
        AS u(tenant, queue, ask, rank, low, ruled, packed, n)
    WHERE NOT u.ruled AND NOT u.packed;
    IF asked.tenants IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO pick FROM holdfast.pick_plain(
        asked.tenants, asked.queues, asked.asks, asked.places, asked.ranks, asked.lows, excluded, now
    );
    IF coalesce(cardinality(pick.seqs), 0) < asked.number THEN
        -- Fewer than there should be: once more from the very beginning, lest one be forgotten. What
        -- was picked is locked by us and is picked again.
        SELECT * INTO pick FROM holdfast.pick_plain(
            asked.tenants, asked.queues, asked.asks, asked.places,
            array_fill((-9223372036854775808)::bigint, ARRAY[cardinality(asked.ranks)]),
            array_fill(0::bigint, ARRAY[cardinality(asked.ranks)]), excluded, now
        );
    END IF;
    seqs := pick.seqs;
    numbers := ARRAY(
        SELECT count(p.place) FROM generate_series(1, cardinality(tenants)) i
        LEFT JOIN unnest(pick.places) AS p(place) ON p.place = i GROUP BY i ORDER BY i
    );
END
$$;

-- Leases up to so many jobs: tenants take turns by weight, and the lines of each within its turn. A
-- row without a seq says that sleepers must look again.
CREATE FUNCTION holdfast.claim(
    for_worker text, nonce text, most integer, lease_us bigint, in_tenants text[],
    in_queues text[], excluded text[], given_now bigint, probe boolean, events boolean,
    channel text, repair_most integer, repair_passes integer, lines_per_claim integer,
    repeat_us bigint
) RETURNS SETOF holdfast.leased LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    own text := nonce;
    room bigint := most;
    told holdfast.told[];
    -- The tenants of this round.
    names text[];
    saved bigint[];
    weights bigint[];
    are_ruled boolean[];
    times bigint;
    -- Those whose lines are read next.
    low integer;
    high integer;
    budget bigint;
    mosts bigint[];
    lines record;
    more jsonb;
    line holdfast.line;
    allowed bigint;
    need bigint;
    share bigint;
    alive integer;
    ask bigint;
    -- Of the lines read: what each has left, and which place it has among those visited.
    has bigint[];
    places integer[];
    pick record;
    -- The lines that this round visits: what each was asked for and gave, and the place of its tenant.
    n integer;
    tenants text[];
    queues text[];
    ranks bigint[];
    lows bigint[];
    asks bigint[];
    gave bigint[];
    owners integer[];
    ruled boolean[];
    packed boolean[];
    -- By the place of a tenant: what it may take, and what room there was for it.
    alloweds bigint[];
    rooms bigint[];
    seqs bigint[];
    packs bigint[];
    numbers integer[];
    pack_visits integer[];
    heads bigint[];
    all_seqs bigint[] := '{}';
    dry_tenants text[] := '{}';
    dry_queues text[] := '{}';
    visit integer := 0;
    first integer;
    last integer;
    rest boolean;
    opened boolean;
    dried bigint;
    taken bigint;
BEGIN
    IF probe AND NOT holdfast.any_turn(in_tenants, in_queues) AND NOT holdfast.overdue(now)
        AND NOT holdfast.unlooked()
        AND NOT EXISTS (SELECT FROM holdfast.claims c WHERE c.nonce = own)
    THEN
        RETURN;
    END IF;
    PERFORM holdfast.lock_claims();
    now := holdfast.instant_in_order(given_now);
    SELECT c.seqs INTO all_seqs FROM holdfast.claims c WHERE c.nonce = own AND c.until > now;
    IF FOUND THEN
        -- Of the lines it names: who repeats another's claim must not be given its jobs.
        RETURN QUERY SELECT * FROM holdfast.leased_again(own, all_seqs, now) l
        WHERE (in_tenants IS NULL OR l.tenant = ANY (in_tenants))
            AND (in_queues IS NULL OR l.queue = ANY (in_queues));
        RETURN;
    END IF;
    all_seqs := '{}';
    IF holdfast.repair(now, events, repair_most, repair_passes) THEN
        RETURN NEXT NULL::holdfast.leased;
        IF channel IS NOT NULL THEN
            PERFORM pg_notify(channel, '*');
        END IF;
    END IF;
    IF holdfast.fold_in_time() THEN
        PERFORM holdfast.forget_claims(now);
    END IF;
    WHILE room > 0 LOOP
        told := holdfast.told();
        SELECT array_agg(t.tenant ORDER BY t.turn), array_agg(t.credit ORDER BY t.turn),
            array_agg(coalesce(s.weight, 1) ORDER BY t.turn),
            array_agg(r.tenant IS NOT NULL ORDER BY t.turn),
            greatest(
                1, room / sum(coalesce(s.weight, 1))::bigint,
                room * count(*) / (sum(coalesce(s.weight, 1))::bigint * lines_per_claim)
            )
        INTO names, saved, weights, are_ruled, times
        FROM (
            SELECT f.* FROM holdfast.turns(
                told, in_tenants, in_queues, room, dry_tenants, dry_queues
            ) f ORDER BY f.turn LIMIT room
        ) t
        LEFT JOIN holdfast.ruled r ON r.tenant = t.tenant
        LEFT JOIN holdfast.scopes s ON s.kind = 'tenant' AND s.tenant = t.tenant AND s.part = '';
        EXIT WHEN names IS NULL;
        tenants := '{}'; queues := '{}'; ranks := '{}'; lows := '{}'; asks := '{}'; gave := '{}';
        owners := '{}'; ruled := '{}'; packed := '{}'; alloweds := '{}'; rooms := '{}'; seqs := '{}';
        packs := '{}'; numbers := '{}'; pack_visits := '{}';
        n := 0;
        taken := room;
        rest := cardinality(names) = room;
        opened := false;
        low := 1;
        -- What each may take is planned by the counts, and picked after that, all at once; but what
        -- limits allow is known only when it is picked.
        WHILE room > 0 AND low <= cardinality(names) LOOP
            high := low - 1;
            budget := 4 * room;
            mosts := '{}';
            WHILE budget > 0 AND high < cardinality(names) LOOP
                high := high + 1;
                alloweds[high] := CASE WHEN saved[high] > 0 THEN saved[high]
                    ELSE weights[high] * times END;
                mosts := mosts || least(alloweds[high], room);
                budget := budget - least(alloweds[high], room);
            END LOOP;
            SELECT array_agg(l.place + low - 1) AS owners, array_agg(l.line) AS found,
                array_agg((l.line).has) AS has, array_agg(EXISTS (
                    SELECT FROM holdfast.packs p
                    WHERE p.queue = (l.line).queue AND p.tenant = (l.line).tenant
                        AND p.taken < p.number
                        AND (p.rank, p.seq) >= ((l.line).low_rank, (l.line).low_seq & -128)
                )) AS packed
            INTO lines
            FROM holdfast.lines_of(
                told, names[low:high], mosts, in_queues, dry_tenants, dry_queues
            ) l;
            has := lines.has;
            places := array_fill(NULL::integer, ARRAY[coalesce(cardinality(has), 0)]);
            last := 0;
            FOR who IN low..high LOOP
                first := last + 1;
                WHILE lines.owners[last + 1] = who LOOP
                    last := last + 1;
                END LOOP;
                EXIT WHEN room = 0;
                rest := rest OR last - first + 1 >= mosts[who - low + 1];
                rooms[who] := room;
                need := least(alloweds[who], room);
                room := room - need;
                LOOP
                    alive := 0;
                    FOR i IN first..last LOOP
                        alive := alive + (has[i] > 0)::integer;
                    END LOOP;
                    EXIT WHEN need = 0 OR alive = 0;
                    share := greatest(1, need / alive, need / lines_per_claim);
                    FOR i IN first..last LOOP
                        EXIT WHEN need = 0;
                        CONTINUE WHEN has[i] <= 0;
                        line := lines.found[i];
                        ask := least(share, need);
                        IF places[i] IS NULL THEN
                            n := n + 1;
                            places[i] := n;
                            tenants := tenants || line.tenant;
                            queues := queues || line.queue;
                            ranks := ranks || line.low_rank;
                            lows := lows || line.low_seq;
                            asks := asks || 0::bigint;
                            gave := gave || 0::bigint;
                            owners := owners || who;
                            ruled := ruled || are_ruled[who];
                            packed := packed || lines.packed[i];
                        END IF;
                        IF are_ruled[who] THEN
                            more := coalesce(more, holdfast.running_more());
                            IF lines.packed[i] THEN
                                -- From before anything was set. Their jobs have no groups: no more
                                -- of them than this can be taken.
                                PERFORM holdfast.open_front(
                                    line.tenant, line.queue, asks[places[i]] + ask
                                );
                            END IF;
                            SELECT * INTO pick FROM holdfast.pick_ruled(
                                line.tenant, line.queue, ask, line.low_rank, line.low_seq,
                                excluded, now, seqs, more
                            );
                            more := pick.more;
                            asks[places[i]] := asks[places[i]] + ask;
                            -- Where it gave less, it has nothing more for this claim.
                            has[i] := CASE WHEN cardinality(pick.picked) < ask THEN 0
                                ELSE has[i] - ask END;
                            seqs := seqs || pick.picked;
                            gave[places[i]] := gave[places[i]] + cardinality(pick.picked);
                            need := need - cardinality(pick.picked);
                        ELSE
                            ask := least(ask, has[i]);
                            asks[places[i]] := asks[places[i]] + ask;
                            has[i] := has[i] - ask;
                            need := need - ask;
                        END IF;
                    END LOOP;
                END LOOP;
                rest := rest OR alive > 0;
                room := room + need;
            END LOOP;
            low := high + 1;
        END LOOP;
        -- Now room is what is left if all lines have what the counts say.
        IF false = ANY (ruled) THEN
            FOR i IN 1..n LOOP
                CONTINUE WHEN ruled[i] OR NOT packed[i];
                line.tenant := tenants[i]; line.queue := queues[i];
                line.low_rank := ranks[i]; line.low_seq := lows[i];
                SELECT * INTO pick FROM holdfast.pick_front(line, asks[i], excluded, now);
                gave[i] := cardinality(pick.seqs)
                    + (SELECT coalesce(sum(u.number), 0) FROM unnest(pick.numbers) AS u(number));
                seqs := seqs || pick.seqs;
                packs := packs || pick.packs;
                numbers := numbers || pick.numbers;
                pack_visits := pack_visits
                    || array_fill(visit + i, ARRAY[cardinality(pick.packs)]);
            END LOOP;
            SELECT * INTO pick FROM holdfast.pick_lines(
                tenants, queues, asks, ranks, lows, ruled, packed, excluded, now
            );
            seqs := seqs || pick.seqs;
            FOR i IN 1..n LOOP
                CONTINUE WHEN ruled[i] OR packed[i];
                gave[i] := pick.numbers[i];
            END LOOP;
        END IF;
        IF cardinality(packs) > 0 THEN
            heads := ARRAY(
                SELECT p.seq + p.taken + g FROM unnest(packs, numbers) AS u(pack, number)
                JOIN holdfast.packs p ON p.seq = u.pack
                CROSS JOIN LATERAL generate_series(0, u.number - 1) g
            );
            BEGIN
                RETURN QUERY SELECT * FROM holdfast.take_packed(
                    packs, numbers, pack_visits, for_worker, nonce, lease_us, now, events
                );
                all_seqs := all_seqs || heads;
            EXCEPTION WHEN unique_violation THEN
                -- They are taken from their rows in the next round.
                PERFORM holdfast.open_packs(packs);
                FOR i IN 1..cardinality(packs) LOOP
                    gave[pack_visits[i] - visit] := gave[pack_visits[i] - visit] - numbers[i];
                    asks[pack_visits[i] - visit] := asks[pack_visits[i] - visit] - numbers[i];
                END LOOP;
                rest := true;
                opened := true;
            END;
        END IF;
        RETURN QUERY SELECT t.*, NULL::text[], NULL::bytea[] FROM holdfast.take(
            seqs, visit, tenants, queues,
            -- At the first line of each tenant: a turn that a full claim cut short goes on with the
            -- next.
            ARRAY(
                SELECT CASE WHEN i > 1 AND owners[i - 1] = owners[i] THEN NULL
                    WHEN t.gave = rooms[owners[i]] AND t.gave < alloweds[owners[i]]
                    THEN alloweds[owners[i]] - t.gave ELSE 0 END
                FROM generate_series(1, n) i CROSS JOIN LATERAL (
                    SELECT sum(g.gave)::bigint AS gave FROM unnest(gave, owners) AS g(gave, owner)
                    WHERE g.owner = owners[i]
                ) t ORDER BY i
            ),
            for_worker, nonce, lease_us, now, events
        ) t;
        all_seqs := all_seqs || seqs;
        room := taken - (SELECT coalesce(sum(g), 0) FROM unnest(gave) g);
        SELECT dry_tenants || array_agg(tenants[i] ORDER BY i),
            dry_queues || array_agg(queues[i] ORDER BY i), count(*)
        INTO dry_tenants, dry_queues, dried
        FROM generate_series(1, n) i WHERE gave[i] < asks[i];
        EXIT WHEN NOT rest OR (room = taken AND dried = 0 AND NOT opened);
        visit := visit + n;
    END LOOP;
    IF cardinality(all_seqs) > 0 THEN
        INSERT INTO holdfast.claims AS c VALUES (own, now + repeat_us, all_seqs)
        ON CONFLICT ON CONSTRAINT claims_pkey
        DO UPDATE SET until = excluded.until, seqs = excluded.seqs;
    END IF;
END
$$;

-- == enqueue ==

-- Keeps one plain job: as `enqueue_alike`, but without arrays and without a subtransaction to undo,
-- which are half of its time for a single job. False where there is a cap to keep or the id is known,
-- whoever says that it is new: nothing was done then, and `enqueue` must see to it.
CREATE OR REPLACE FUNCTION holdfast.enqueue_one(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, of_id text, of_payload bytea,
    given_now bigint, events boolean, channel text, hint text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now bigint := coalesce(given_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    bytes integer := coalesce(octet_length(of_payload), 0);
    new bigint;
BEGIN
    PERFORM FROM holdfast.ruled r
    WHERE r.tenant = of_tenant AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL);
    IF FOUND OR EXISTS (SELECT FROM holdfast.crowded c WHERE c.tenant = of_tenant)
        OR holdfast.is_packed(of_tenant, ARRAY[of_id])
    THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.jobs (
        seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
        created_at, updated_at, max_attempts, keep_us, size
    )
    VALUES (
        nextval('holdfast.seqs'), of_tenant, of_id, of_queue, of_type, of_codec, of_version,
        of_payload, of_rules, of_priority, now, 'enqueued', now, now, of_attempts, of_keep, bytes
    )
    ON CONFLICT DO NOTHING RETURNING seq INTO new;
    IF new IS NULL THEN
        RETURN false;
    END IF;
    -- After the insert: a job of this id that ended just now is in the history by now.
    PERFORM FROM holdfast.history h WHERE h.tenant = of_tenant AND h.id = of_id;
    IF FOUND THEN
        DELETE FROM holdfast.jobs j WHERE j.seq = new;
        RETURN false;
    END IF;
    INSERT INTO holdfast.ready
    VALUES (new, -of_priority, now, NULL, 0, of_tenant, of_queue, NULL);
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, 1, bytes, -of_priority, new);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        VALUES (
            nextval('holdfast.cursors'), now, 'enqueued', of_tenant, of_id, of_queue, of_type, 0, 0
        );
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
    RETURN true;
END
$$;

-- Keeps jobs that are alike: they share all but their payloads and their ids, which grow; none has
-- a key, a group, a delay, tags or a time to live. Answers as `enqueue` does, which does it all
-- where there is a cap to keep or an id that is known.
CREATE OR REPLACE FUNCTION holdfast.enqueue_alike(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, ids text[], payloads bytea[],
    given_now bigint, events boolean, channel text, hint text, fresh boolean
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    number integer := cardinality(ids);
    seqs bigint[];
    bytes bigint;
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.ruled r
        WHERE r.tenant = of_tenant AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL)
    ) OR EXISTS (SELECT FROM holdfast.crowded c WHERE c.tenant = of_tenant) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF NOT fresh AND holdfast.is_packed(of_tenant, ids) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    -- Without ON CONFLICT, which takes 2 us for each job, of 15.
    WITH new AS (
        INSERT INTO holdfast.jobs (
            seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
            created_at, updated_at, max_attempts, keep_us, size
        )
        SELECT nextval('holdfast.seqs'), of_tenant, u.id, of_queue, of_type, of_codec, of_version,
            u.payload, of_rules, of_priority, now, 'enqueued', now, now, of_attempts, of_keep,
            coalesce(octet_length(u.payload), 0)
        FROM unnest(ids, payloads) AS u(id, payload)
        RETURNING seq, size
    )
    SELECT array_agg(new.seq), sum(new.size) INTO seqs, bytes FROM new;
    -- After the insert: a job of this id that ended just now is in the history by now. First
    -- between all ids, see layout.py.
    IF NOT fresh THEN
        IF EXISTS (
            SELECT FROM holdfast.history h
            WHERE h.tenant = of_tenant AND h.id BETWEEN ids[1] AND ids[number]
        ) THEN
            IF EXISTS (
                SELECT FROM unnest(ids) AS u(id)
                JOIN holdfast.history h ON h.tenant = of_tenant AND h.id = u.id
            ) THEN
                RAISE SQLSTATE 'HF001';
            END IF;
        END IF;
    END IF;
    INSERT INTO holdfast.ready
    SELECT u.seq, -of_priority, now, NULL, 0, of_tenant, of_queue FROM unnest(seqs) AS u(seq);
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, number, bytes, -of_priority, seqs[1]);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', of_tenant, u.id, of_queue, of_type, 0, 0
        FROM unnest(ids) AS u(id);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
EXCEPTION WHEN unique_violation OR SQLSTATE 'HF001' THEN
    RETURN QUERY SELECT * FROM holdfast.enqueue(
        array_fill(of_tenant, ARRAY[number]), ids, array_fill(of_queue, ARRAY[number]),
        array_fill(of_type, ARRAY[number]), array_fill(of_codec, ARRAY[number]),
        array_fill(of_version, ARRAY[number]), payloads, array_fill(of_rules, ARRAY[number]),
        array_fill(of_priority, ARRAY[number]), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        array_fill(of_attempts, ARRAY[number]), array_fill(of_keep, ARRAY[number]), given_now,
        events, channel, hint
    );
END
$$;

-- Keeps jobs as `enqueue_alike` does, which has the word where they cannot be packed. Their ids were
-- made for this very call, so it is enough to look for known ids in packs before an insert, here and
-- elsewhere.
CREATE OR REPLACE FUNCTION holdfast.enqueue_pack(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, ids text[], payloads bytea[],
    given_now bigint, events boolean, channel text, hint text, fresh boolean
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    number integer := cardinality(ids);
    bytes bigint := (SELECT coalesce(sum(octet_length(u.p)), 0) FROM unnest(payloads) AS u(p));
    ruled boolean := EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = of_tenant);
    head bigint;
    new bigint;
    low integer := 1;
    high integer;
    lows integer[];
    highs integer[];
BEGIN
    -- A claim reads a pack as a whole, so large payloads stay in rows; so do jobs of tenants with
    -- settings, whose claims ask more of each job, and those whose ids do not begin alike.
    IF bytes > number * 1024::bigint OR (fresh AND ruled)
        OR EXISTS (SELECT FROM holdfast.crowded c WHERE c.tenant = of_tenant)
        OR (NOT fresh AND holdfast.is_packed(of_tenant, ids))
        OR holdfast.stem(ids[1]) <> holdfast.stem(ids[number]) AND number < 8 * (
            SELECT count(DISTINCT holdfast.stem(u.id)) FROM unnest(ids) AS u(id)
        )
    THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    WHILE low <= number LOOP
        high := least(low + 127, number);
        WHILE holdfast.stem(ids[high]) <> holdfast.stem(ids[low]) LOOP
            high := high - 1;
        END LOOP;
        INSERT INTO holdfast.packs VALUES (
            nextval('holdfast.seqs'), -of_priority, now, of_keep, of_version, of_attempts,
            high - low + 1, 0, of_tenant, of_queue, of_type, of_codec, ids[low], ids[high],
            of_rules, ids[low:high], payloads[low:high]
        ) RETURNING seq INTO new;
        head := coalesce(head, new);
        lows := lows || low;
        highs := highs || high;
        low := high + 1;
    END LOOP;
    -- After the insert, for which a repeated call waits until its first try has ended: those jobs
    -- may be anywhere by now. First between all ids, see layout.py.
    IF (ruled AND NOT fresh) OR holdfast.is_held(of_tenant, ids) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.tenant = of_tenant AND j.id BETWEEN ids[1] AND ids[number]
    ) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id)
        JOIN holdfast.jobs j ON j.tenant = of_tenant AND j.id = u.id
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF NOT fresh AND holdfast.ended_between(array_fill(of_tenant, ARRAY[number]), ids) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id)
        JOIN holdfast.history h ON h.tenant = of_tenant AND h.id = u.id
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, number, bytes, -of_priority, head);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', of_tenant, ids[u.low], of_queue,
            of_type, 0, 0, NULL, NULL, u.high - u.low + 1, ids[u.high], ids[u.low:u.high]
        FROM unnest(lows, highs) AS u(low, high);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
EXCEPTION WHEN unique_violation OR SQLSTATE 'HF001' THEN
    RETURN QUERY SELECT * FROM holdfast.enqueue_alike(
        of_tenant, of_queue, of_type, of_codec, of_version, of_rules, of_priority, of_attempts,
        of_keep, ids, payloads, given_now, events, channel, hint,
        fresh AND SQLSTATE = 'HF001' AND (ruled OR bytes > number * 1024::bigint)
    );
END
$$;

-- What does it all with care knows nothing of packs and pieces, nor of tenants that are full: ids
-- that are in one and jobs that are too many are answered here, and the rest is left to it. No pack is
-- opened for that, since this may run in somebody's long transaction. All are looked for in one
-- statement, which finds a job on its way from a pack to a piece in one of them.
CREATE OR REPLACE FUNCTION holdfast.enqueue(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    fresh boolean DEFAULT false
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
DECLARE
    known holdfast.answer[];
    others integer[];
BEGIN
    IF EXISTS (SELECT FROM holdfast.crowded c WHERE c.tenant = ANY (tenants)) THEN
        known := holdfast.too_many(tenants, ids, queues, groups);
    END IF;
    IF coalesce(cardinality(known), 0) = 0
        AND NOT (holdfast.packed_between(tenants, ids) OR holdfast.held_between(tenants, ids))
    THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_rows(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, delays,
            run_at_givens, ttls, keys, key_lengths, groups, tags, origins, attempts, keeps,
            given_now, events, channel, hint, fresh
        );
        RETURN;
    END IF;
    known := known || ARRAY(
        SELECT holdfast.earlier(u.n::integer, u.id, u.queue, u.type, w.queue, w.type)
        FROM unnest(tenants, ids, queues, types) WITH ORDINALITY AS u(tenant, id, queue, type, n)
        CROSS JOIN LATERAL (
            SELECT p.queue, p.type FROM holdfast.packs p
            WHERE p.seq = holdfast.pack_of(u.tenant, u.id)
            UNION ALL
            SELECT p.queue, p.type
            FROM unnest(holdfast.pieces_of(ARRAY[holdfast.held_as(u.tenant, u.id)])) AS f(seq)
            JOIN holdfast.pieces p ON p.seq = f.seq
            LIMIT 1
        ) w WHERE u.n NOT IN (SELECT k.ord FROM unnest(known) k)
    );
    RETURN QUERY SELECT * FROM unnest(known);
    others := ARRAY(
        SELECT n FROM generate_series(1, cardinality(ids)) n
        WHERE n NOT IN (SELECT k.ord FROM unnest(known) k) ORDER BY n
    );
    IF cardinality(others) > 0 THEN
        RETURN QUERY
        SELECT others[a.ord], a.why, a.id, a.queue, a.type, a.has, a.most
        FROM holdfast.enqueue_rows(
            holdfast.only(tenants, others), holdfast.only(ids, others),
            holdfast.only(queues, others), holdfast.only(types, others),
            holdfast.only(codecs, others), holdfast.only(versions, others),
            holdfast.only(payloads, others), holdfast.only(rules, others),
            holdfast.only(priorities, others), holdfast.only(delays, others),
            holdfast.only(run_at_givens, others), holdfast.only(ttls, others),
            holdfast.only(keys, others), holdfast.only(key_lengths, others),
            holdfast.only(groups, others), holdfast.only(tags, others),
            holdfast.only(origins, others), holdfast.only(attempts, others),
            holdfast.only(keeps, others), given_now, events, channel, hint, fresh
        ) a;
    END IF;
END
$$;

-- == cancel ==

DROP FUNCTION holdfast.cancel(text[], text[], bigint, boolean, text, text);

-- Cancels what is not finished. Gives each job's state now, NULL for those not there; and, without
-- a place, the lines that may have come up. The events say by whom.
CREATE FUNCTION holdfast.cancel(
    tenants text[], ids text[], given_now bigint, events boolean, channel text, sender text,
    by_whom text, OUT ord integer, OUT state text, OUT tenant text, OUT queue text
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
        INSERT INTO holdfast.events (
            cursor, at, kind, tenant, job_id, queue, type, attempt, fence, signed
        )
        SELECT nextval('holdfast.cursors'), now, 'canceled', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence, by_whom
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
    PERFORM holdfast.tell_ended(done.tenants, done.ids, channel, sender);
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

-- == SQL users ==

-- What jobs of a type get where an INSERT says nothing: as an app has published it, in the setting
-- `type/<name>` (holdfast/types.py), or else the defaults. What is no type says nothing.
CREATE FUNCTION holdfast.type_says(
    job_type text, OUT queue text, OUT priority bigint, OUT rules jsonb, OUT max_attempts integer,
    OUT keep_us bigint, OUT key_us bigint
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    says jsonb;
BEGIN
    SELECT holdfast.as_json('json', s.value) INTO says FROM holdfast.settings s
    WHERE s.name = 'type/' || job_type;
    queue := coalesce(says ->> 'queue', 'default');
    priority := coalesce((says ->> 'priority')::bigint, 0);
    rules := coalesce(says -> 'rules', '{}');
    max_attempts := coalesce((rules ->> 'max_attempts')::integer, 3);
    keep_us := coalesce((rules ->> 'keep_us')::bigint, 86400000000);
    key_us := (rules ->> 'key_us')::bigint;
    IF jsonb_typeof(rules) <> 'object' OR max_attempts NOT BETWEEN 1 AND 1000 OR keep_us < 0
        OR key_us < 0
    THEN
        RAISE check_violation;
    END IF;
EXCEPTION WHEN data_exception OR check_violation THEN
    queue := 'default'; priority := 0; rules := '{}'; max_attempts := 3; keep_us := 86400000000;
    key_us := NULL;
END
$$;

CREATE OR REPLACE FUNCTION holdfast.queue_jobs_insert() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    answer holdfast.answer;
    says record;
    attempts integer;
BEGIN
    -- The name of the setting in two parts, for the schema may have another name than the setting.
    NEW.tenant := coalesce(NEW.tenant, nullif(current_setting('holdfast' || '.tenant', true), ''));
    IF NEW.tenant IS NULL THEN
        RAISE EXCEPTION 'queue_jobs.tenant: is not given, and the setting % has no value',
            'holdfast' || '.tenant' USING ERRCODE = 'check_violation',
            HINT = 'Name a tenant, or set one: ALTER ROLE ... SET holdfast' || '.tenant = ...';
    END IF;
    SELECT * INTO says FROM holdfast.type_says(NEW.job_type);
    attempts := coalesce(NEW.max_attempts, says.max_attempts);
    NEW.queue := coalesce(NEW.queue, says.queue);
    NEW.id := coalesce(NEW.id, gen_random_uuid()::text);
    NEW.priority := coalesce(NEW.priority, says.priority);
    PERFORM holdfast.check_word('tenant', NEW.tenant, 128);
    PERFORM holdfast.check_word('job_type', NEW.job_type, 128);
    PERFORM holdfast.check_word('queue', NEW.queue, 128);
    PERFORM holdfast.check_word('id', NEW.id, 128);
    IF NEW.idempotency_key IS NOT NULL THEN
        PERFORM holdfast.check_word('idempotency_key', NEW.idempotency_key, 512);
    END IF;
    IF NEW.group_name IS NOT NULL THEN
        PERFORM holdfast.check_word('group_name', NEW.group_name, 256);
    END IF;
    IF NEW.payload IS NULL OR jsonb_typeof(NEW.payload) <> 'object' THEN
        RAISE EXCEPTION 'queue_jobs.payload: must be a JSON object with the fields of the job type'
            USING ERRCODE = 'check_violation';
    END IF;
    IF octet_length(NEW.payload::text) > 262144 THEN
        RAISE EXCEPTION 'queue_jobs.payload: has % bytes, at most 262144',
            octet_length(NEW.payload::text) USING ERRCODE = 'check_violation';
    END IF;
    IF attempts NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'queue_jobs.max_attempts: is %, must be 1 to 1000', attempts
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.priority NOT BETWEEN -2147483648 AND 2147483648 THEN
        RAISE EXCEPTION 'queue_jobs.priority: is %, must be -2147483648 to 2147483648', NEW.priority
            USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO answer FROM holdfast.enqueue(
        ARRAY[NEW.tenant], ARRAY[NEW.id], ARRAY[NEW.queue], ARRAY[NEW.job_type], ARRAY['json'],
        ARRAY[1], ARRAY[convert_to(NEW.payload::text, 'UTF8')],
        -- What equals a default of the stored format is left out of it.
        ARRAY[(says.rules - 'max_attempts' || CASE attempts WHEN 3 THEN '{}'
            ELSE jsonb_build_object('max_attempts', attempts) END)::text],
        ARRAY[NEW.priority], NULL,
        ARRAY[(extract(epoch FROM NEW.run_at) * 1000000)::bigint], NULL,
        CASE WHEN NEW.idempotency_key IS NOT NULL THEN ARRAY[NEW.idempotency_key] END,
        ARRAY[says.key_us], ARRAY[NEW.group_name], NULL, NULL, ARRAY[attempts],
        ARRAY[says.keep_us], NULL, true,
        'holdfast_' || TG_TABLE_SCHEMA, '*'
    );
    IF answer.why = 'conflict' THEN
        RAISE EXCEPTION 'queue_jobs.id: % is a job of type % in queue %', NEW.id, answer.type,
            answer.queue USING ERRCODE = 'unique_violation';
    ELSIF answer.why = 'full' THEN
        RAISE EXCEPTION 'queue_jobs.tenant: % is full: % of % % are queued', NEW.tenant, answer.has,
            answer.most, answer.queue USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.why = 'many' THEN
        RAISE EXCEPTION 'queue_jobs.tenant: % has % %, the most that a tenant may have', NEW.tenant,
            answer.most, answer.queue USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.why = 'known' THEN
        NEW.id := answer.id;
    END IF;
    RETURN NEW;
END
$$;

-- What completed jobs gave, while their records are kept.
CREATE VIEW holdfast.job_results AS
SELECT h.tenant, h.id, h.queue, h.type AS job_type, holdfast.as_json(h.codec, h.result) AS result,
    h.attempt AS attempts, holdfast.to_time(h.created_at) AS created_at,
    holdfast.to_time(h.finished_at) AS finished_at
FROM holdfast.history h WHERE h.state = 'completed';
