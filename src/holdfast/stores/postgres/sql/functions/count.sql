-- Counts: `counts` plus the deltas since. Folding adds deltas to the counts.

-- The counts of a scope as of now: its row of `counts` plus the deltas since.
CREATE OR REPLACE FUNCTION holdfast.scope_counts(
    of_kind text, of_tenant text, of_part text,
    OUT processing bigint, OUT alive bigint, OUT bytes bigint
) LANGUAGE plpgsql STABLE SET jit = off AS $$
BEGIN
    SELECT coalesce(sum(t.processing), 0),
        coalesce(sum(t.waiting + t.scheduled + t.enqueued + t.processing + t.retrying), 0),
        coalesce(sum(t.bytes), 0)
    INTO processing, alive, bytes FROM (
        SELECT c.waiting, c.scheduled, c.enqueued, c.processing, c.retrying, c.bytes
        FROM holdfast.counts c WHERE c.kind = of_kind AND c.tenant = of_tenant AND c.part = of_part
        UNION ALL
        SELECT d.waiting, d.scheduled, d.enqueued, d.processing, d.retrying, d.bytes
        FROM holdfast.deltas d
        WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state) AND d.queue IS NOT NULL
            AND d.tenant = of_tenant AND CASE of_kind
                WHEN 'queue' THEN d.queue = of_part
                WHEN 'group' THEN d.group_name = of_part
                ELSE true END
    ) t;
END
$$;

-- Folds a portion where there are more deltas than a claim may read, so that no claim takes long,
-- however much was written while nobody claimed. True where there are still too many: the claim
-- tells its caller to make it again, by a row with a run_at of -1, and ends, which keeps what is
-- taken.
CREATE OR REPLACE FUNCTION holdfast.fold_backlog() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT holdfast.has_backlog() THEN
        RETURN false;
    END IF;
    PERFORM holdfast.fold_deltas(10000, true);
    RETURN holdfast.has_backlog();
END
$$;

-- True when there are more than 10,000 deltas. The ids since the floor are many more mostly.
CREATE OR REPLACE FUNCTION holdfast.has_backlog() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF (
        SELECT c.last_value < h.deltas_floor + 10000
        FROM holdfast.cursors c CROSS JOIN holdfast.store_state h
    ) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT FROM holdfast.deltas d WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
        ORDER BY d.id OFFSET 10000
    );
END
$$;

-- Folds when claims would. For who has their lock and writes deltas: there may be no claims.
CREATE OR REPLACE FUNCTION holdfast.fold_if_due() RETURNS void LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
BEGIN
    IF (SELECT low.fold_is_due FROM holdfast.scan_floors() low) THEN
        PERFORM holdfast.fold_deltas(10000, true);
    END IF;
END
$$;

-- Adds up to `most` deltas to the counts, oldest first, and deletes them; returns how many. The
-- caller has the lock of claims. What the refresh of scopes has not read it still hears of: at
-- once, or `later`, from a list, where the caller has not had it read the deltas before.
CREATE OR REPLACE FUNCTION holdfast.fold_deltas(most integer, later boolean DEFAULT false)
RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off SET enable_material = off AS $$
DECLARE
    -- Before the deltas are read: all that is below the horizon is visible to that statement.
    committed bigint := holdfast.horizon();
    state holdfast.store_state := (SELECT s FROM holdfast.store_state s);
    -- An older snapshot does too: to find the last one among very many deltas, all must be read.
    seen pg_snapshot := CASE WHEN holdfast.has_backlog() THEN state.last_refresh
        ELSE holdfast.last_refresh() END;
    taken record;
    lines bigint;
    last bigint;
BEGIN
    PERFORM holdfast.announce();
    SELECT * INTO taken FROM holdfast.take_deltas(most, state, seen, later);
    lines := holdfast.add_to_counts(taken.changes);
    IF taken.number >= 10000 THEN
        ANALYZE holdfast.counts;  -- So that the planner knows before autovacuum comes around.
    END IF;
    IF taken.number >= most THEN
        committed := least(committed, taken.last_id);
    END IF;
    SELECT last_value INTO last FROM holdfast.instants;
    -- The floors of leases and due jobs: an old snapshot keeps dead entries of indexes in place,
    -- and claims must not walk over them. What comes later is named by its delta.
    UPDATE holdfast.store_state SET last_refresh = coalesce(taken.refreshed, seen),
        folded_at = clock_timestamp(), deltas_floor = committed + 1,
        -- Folding pays where several deltas become one update of a line.
        fold_at = least(1000, greatest(64, 3 * lines)),
        leases_floor = coalesce((
            SELECT l.until FROM holdfast.leases l
            WHERE NOT l.spent AND l.until >= least(state.leases_floor, taken.leases_until)
            ORDER BY l.until LIMIT 1
        ), 9223372036854775807),
        due_floor = least(last, (
            SELECT j.run_at FROM holdfast.jobs j WHERE j.gate = 2 AND j.late = 0
                AND j.run_at >= least(state.due_floor, taken.due) ORDER BY j.run_at LIMIT 1
        ));
    RETURN taken.number;
END
$$;

-- Adds these changes to the counts, and notes where the ready jobs of each line begin by now
-- (`floor`), for the same reason as the floors of `fold_deltas`. Returns how many lines there were.
-- After the statement that has read the deltas: it must see all jobs that they name.
CREATE OR REPLACE FUNCTION holdfast.add_to_counts(changes holdfast.counts[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    changed holdfast.count_change[];
    lines bigint;
BEGIN
    -- Not one upsert: what it needs besides the new row it would have to search for, row by row.
    WITH found AS MATERIALIZED (
        SELECT s.*, c.place, first.rank, first.seq,
            max(s.turn) FILTER (WHERE s.kind = 'tenant') OVER (PARTITION BY s.tenant)
                AS new_turn
        FROM unnest(changes) s
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.floor_rank, x.floor_seq FROM holdfast.counts x
            WHERE x.kind = s.kind AND x.tenant = s.tenant AND x.part = s.part LIMIT 1
        ) c ON true
        CROSS JOIN LATERAL holdfast.first_position(
            c.place IS NULL, c.floor_rank, c.floor_seq, s.floor_rank, s.floor_seq
        ) low
        LEFT JOIN LATERAL (
            SELECT -j.priority AS rank, j.seq FROM holdfast.jobs j
            WHERE s.kind = 'queue' AND j.gate = 0 AND j.late = 0 AND j.queue = s.part
                AND j.tenant = s.tenant AND j.state = 'enqueued'
                AND (-j.priority, j.seq) >= (low.place[1], low.place[2])
            ORDER BY -j.priority, j.seq LIMIT 1
        ) first ON true
    ), updated AS (
        UPDATE holdfast.counts c SET
            waiting = c.waiting + s.waiting, scheduled = c.scheduled + s.scheduled,
            enqueued = c.enqueued + s.enqueued, processing = c.processing + s.processing,
            retrying = c.retrying + s.retrying, completed = c.completed + s.completed,
            failed = c.failed + s.failed, canceled = c.canceled + s.canceled,
            bytes = c.bytes + s.bytes, blocked = c.blocked + s.blocked,
            -- Whatever comes up goes to the end, a line among its tenant's and a tenant among all;
            -- so does what was served.
            turn = CASE
                WHEN c.kind = 'tenant' AND (c.lines > 0 OR c.kept)
                    OR c.kind = 'queue' AND c.enqueued > c.blocked
                THEN greatest(c.turn, s.turn)
                ELSE coalesce(greatest(s.turn, s.tenant_turn), c.turn) END,
            credit = coalesce(s.credit, c.credit),
            floor_rank = coalesce(s.rank, 9223372036854775807),
            floor_seq = coalesce(s.seq, 9223372036854775807),
            -- The line is written anyway: no claim has to correct its copy then.
            tenant_turn = CASE c.kind
                WHEN 'queue' THEN greatest(c.tenant_turn, s.new_turn) ELSE c.tenant_turn END,
            kept = CASE WHEN c.kept
                THEN EXISTS (SELECT FROM holdfast.aside a WHERE a.tenant = c.tenant)
                ELSE false END
        FROM found s WHERE c.ctid = s.place
        RETURNING c.kind, c.tenant, c.part, false AS is_new,
            CASE WHEN c.kind = 'queue' AND c.open THEN (c.enqueued > c.blocked)::integer
                - (c.enqueued - s.enqueued > c.blocked - s.blocked)::integer ELSE 0 END AS lines
    ), inserted AS (
        INSERT INTO holdfast.counts
        SELECT s.kind, s.tenant, s.part, s.waiting, s.scheduled, s.enqueued, s.processing,
            s.retrying, s.completed, s.failed, s.canceled, s.bytes, s.blocked, true,
            coalesce(greatest(s.turn, s.tenant_turn), 0), coalesce(s.credit, 0),
            coalesce(s.rank, 9223372036854775807), coalesce(s.seq, 9223372036854775807)
        FROM found s WHERE s.place IS NULL
        RETURNING kind, tenant, part, true, (kind = 'queue' AND enqueued > blocked)::integer
    )
    SELECT array_agg((x.kind, x.tenant, x.part, x.is_new, x.lines)::holdfast.count_change)
            FILTER (WHERE x.is_new OR x.lines <> 0), count(*) FILTER (WHERE x.kind = 'queue')
    INTO changed, lines FROM (SELECT * FROM updated UNION ALL SELECT * FROM inserted) x;
    IF changed IS NOT NULL THEN
        PERFORM holdfast.count_new_lines(changed);
    END IF;
    RETURN lines;
END
$$;

-- Deletes up to `most` deltas, oldest first, and returns them added up by scope, as rows that are
-- to be added to `counts`: each counts for its queue, its tenant and its group. Their `floor` is
-- where jobs came, their `tenant_turn` when. Running jobs are added to the scopes of the platform.
CREATE OR REPLACE FUNCTION holdfast.take_deltas(
    most integer, state holdfast.store_state, seen pg_snapshot, later boolean,
    OUT changes holdfast.counts[], OUT number bigint, OUT last_id bigint, OUT due bigint,
    OUT leases_until bigint, OUT refreshed pg_snapshot
) LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS MATERIALIZED (
        DELETE FROM holdfast.deltas g WHERE g.ctid = ANY (ARRAY(
            SELECT d.ctid FROM holdfast.deltas d WHERE d.id >= state.deltas_floor
            ORDER BY d.id LIMIT most
        ))
        RETURNING *
    ), touched AS (
        SELECT DISTINCT g.tenant, g.queue, g.group_name FROM gone g LEFT JOIN LATERAL (
            SELECT true AS has FROM holdfast.tenants_with_settings r
            WHERE r.tenant = g.tenant LIMIT 1
        ) r ON true
        WHERE g.tenant <> '' AND NOT pg_visible_in_snapshot(g.txid, seen)
            AND (r.has OR state.limits_all OR state.gates_all AND g.group_name IS NOT NULL)
    ), named AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name)
        SELECT t.* FROM touched t WHERE NOT later
    ), listed AS (
        INSERT INTO holdfast.unchecked (tenant, queue, group_name)
        SELECT t.* FROM touched t WHERE later
    ), placed AS (
        UPDATE holdfast.scopes s SET running = s.running + f.number FROM (
            SELECT w.kind, w.part, sum(x.number) AS number FROM (
                SELECT g.queue, g.type, sum(g.processing) AS number FROM gone g
                WHERE state.platform AND g.queue IS NOT NULL AND g.processing <> 0
                GROUP BY g.queue, g.type
            ) x CROSS JOIN LATERAL (
                VALUES ('platform', ''), ('queue', x.queue), ('type', x.type)
            ) w(kind, part) GROUP BY w.kind, w.part HAVING sum(x.number) <> 0
        ) f
        WHERE s.kind = f.kind AND s.tenant = '' AND s.part = f.part
    ), summed AS (
        SELECT s.kind, s.tenant, s.part, sum(s.waiting), sum(s.scheduled), sum(s.enqueued),
            sum(s.processing), sum(s.retrying), sum(s.completed), sum(s.failed), sum(s.canceled),
            sum(s.bytes)::bigint, sum(s.blocked), true, max(s.id) FILTER (WHERE s.served),
            (max(ARRAY[s.id, s.credit]) FILTER (WHERE s.credit IS NOT NULL))[2],
            min(s.head_rank), min(s.head_seq), 0, 0, 0, min(s.id) FILTER (WHERE s.comes), false,
            false
        FROM (
            SELECT 'queue' AS kind, d.tenant, d.queue AS part, d.waiting, d.scheduled, d.enqueued,
                d.processing, d.retrying, d.completed, d.failed, d.canceled, 0::bigint AS bytes,
                d.blocked, d.id, d.enqueued > d.blocked AS comes, d.served, NULL::bigint AS credit,
                d.head_rank, d.head_seq
            FROM gone d WHERE d.queue IS NOT NULL
            UNION ALL
            SELECT 'tenant', d.tenant, '', d.waiting, d.scheduled, d.enqueued, d.processing,
                d.retrying, d.completed, d.failed, d.canceled, d.bytes, 0, d.id,
                d.enqueued > d.blocked, d.turned, d.credit, NULL, NULL
            FROM gone d WHERE d.queue IS NOT NULL
            UNION ALL
            SELECT 'group', d.tenant, d.group_name, d.waiting, d.scheduled, d.enqueued,
                d.processing, d.retrying, d.completed, d.failed, d.canceled, 0, 0, d.id, false,
                false, NULL, NULL, NULL
            FROM gone d WHERE d.queue IS NOT NULL AND d.group_name IS NOT NULL
        ) s GROUP BY s.kind, s.tenant, s.part
    )
    SELECT ARRAY(SELECT s::holdfast.counts FROM summed s), count(*), max(g.id), min(g.due),
        min(g.leases_until),
        (array_agg(g.refreshed ORDER BY g.id DESC) FILTER (WHERE g.refreshed IS NOT NULL))[1]
    INTO changes, number, last_id, due, leases_until, refreshed FROM gone g;
END
$$;

-- Where the ready jobs of a line may begin, as [rank, seq]: at the floor that its row of `counts`
-- has, or at the first job that deltas name. Without such a row all of its jobs are named by
-- deltas. A function that PostgreSQL can inline.
CREATE OR REPLACE FUNCTION holdfast.first_position(
    is_new boolean, floor_rank bigint, floor_seq bigint, head_rank bigint, head_seq bigint,
    OUT place bigint[]
) LANGUAGE sql IMMUTABLE AS $$
    SELECT least(
        CASE WHEN is_new THEN ARRAY[9223372036854775807, 9223372036854775807]
            WHEN floor_rank IS NULL THEN ARRAY[-9223372036854775808, 0]
            ELSE ARRAY[floor_rank, floor_seq] END,
        CASE WHEN head_rank IS NOT NULL THEN ARRAY[head_rank, head_seq] END
    )
$$;

-- Brings the counts of tenants in step with their queues and groups: how many there are, and how
-- many of the queues are open lines with jobs. A line that comes up gets a copy of its tenant's
-- turn.
CREATE OR REPLACE FUNCTION holdfast.count_new_lines(changed holdfast.count_change[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- By where the rows are, looked up one by one, whatever the planner thinks of their number.
    WITH found AS MATERIALIZED (
        SELECT u.*, t.place FROM (
            SELECT x.tenant, sum(x.lines) AS lines,
                count(*) FILTER (WHERE x.is_new AND x.kind = 'queue') AS queues,
                count(*) FILTER (WHERE x.is_new AND x.kind = 'group') AS groups
            FROM unnest(changed) x WHERE x.kind <> 'tenant' GROUP BY x.tenant
        ) u CROSS JOIN LATERAL (
            SELECT x.ctid AS place FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = u.tenant AND x.part = '' LIMIT 1
        ) t
    )
    UPDATE holdfast.counts c SET lines = c.lines + f.lines, queues = c.queues + f.queues,
        groups = c.groups + f.groups
    FROM found f WHERE c.ctid = f.place;
    WITH found AS MATERIALIZED (
        SELECT l.place, t.turn FROM unnest(changed) u CROSS JOIN LATERAL (
            SELECT x.turn FROM holdfast.counts x
            WHERE x.kind = 'tenant' AND x.tenant = u.tenant AND x.part = '' LIMIT 1
        ) t CROSS JOIN LATERAL (
            SELECT x.ctid AS place, x.tenant_turn FROM holdfast.counts x
            WHERE x.kind = 'queue' AND x.tenant = u.tenant AND x.part = u.part LIMIT 1
        ) l
        WHERE u.kind = 'queue' AND u.lines > 0 AND l.tenant_turn <> t.turn
    )
    UPDATE holdfast.counts c SET tenant_turn = f.turn FROM found f WHERE c.ctid = f.place;
END
$$;
