-- The instant, the locks, the log's horizon; and how the counts take in what has changed.
-- Busy functions are PL/pgSQL throughout: functions in plain SQL are planned anew at each call.

-- The caller's instant, which tests bring along; the server's clock in all other cases.
CREATE FUNCTION holdfast.instant(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- The instant of a step that has the lock of claims: never before that of the one before it, for a
-- clock may be set back, or have been read before the lock was given. A step back of more than ten
-- seconds is believed.
CREATE FUNCTION holdfast.instant_in_order(given bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now bigint := holdfast.instant(given);
    last bigint;
BEGIN
    SELECT last_value INTO last FROM holdfast.instants;
    IF last > now AND last - now < 10000000 THEN
        RETURN last;
    END IF;
    IF last > now THEN
        UPDATE holdfast.heads SET held_floor = 0, due_floor = 0;
    END IF;
    PERFORM setval('holdfast.instants', now);
    RETURN now;
END
$$;

-- One claimer, fold or change of settings at a time, until its transaction ends.
CREATE FUNCTION holdfast.lock_claims() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('holdfast.claims'), 0);
END
$$;

-- To be called before a transaction draws its first cursor. The lock tells readers of the log that
-- cursors from here on may still be on their way: commits do not come in the order of cursors.
CREATE FUNCTION holdfast.announce() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    own text := 'holdfast.' || pg_current_xact_id()::text;
BEGIN
    IF current_setting('holdfast_log.announced', true) IS DISTINCT FROM own THEN
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('holdfast.events'),
            CASE WHEN is_called THEN (last_value & 2147483647)::integer ELSE 0 END
        ), set_config('holdfast_log.announced', own, true) FROM holdfast.cursors;
    END IF;
END
$$;

-- Up to which cursor every event is there for good. The head is read before the locks: who has no
-- lock yet draws higher ones.
CREATE FUNCTION holdfast.horizon() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
    lowest bigint;
BEGIN
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO head FROM holdfast.cursors;
    SELECT min(head - ((head - objid::bigint) & 2147483647)) INTO lowest FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock' AND granted
        AND classid::bigint = (hashtext('holdfast.events')::bigint & 4294967295)
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN least(head, lowest);  -- A lock's number is the last cursor drawn before it.
END
$$;

CREATE FUNCTION holdfast.scope_key(kind text, tenant text, part text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT kind || '/' || length(tenant) || ':' || tenant || '/' || part
$$;

-- The newest snapshot in which somebody has looked at the scopes that deltas name.
CREATE FUNCTION holdfast.last_look() RETURNS pg_snapshot LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT d.mark FROM holdfast.deltas d
            WHERE d.txid >= h.floor AND d.mark IS NOT NULL ORDER BY d.id DESC LIMIT 1
        ),
        h.mark
    ) FROM holdfast.heads h;
END
$$;

-- Adds what has changed to the counts. The caller has the lock of claims.
CREATE FUNCTION holdfast.fold(most integer) RETURNS bigint LANGUAGE plpgsql
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
            retrying, completed, failed, canceled, 0 AS bytes, blocked, id, served, credit,
            head_rank, head_seq
        FROM gone WHERE queue IS NOT NULL
        UNION ALL
        SELECT 'tenant', tenant, '', waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, 0, id, false, NULL, NULL, NULL
        FROM gone WHERE queue IS NOT NULL
        UNION ALL
        SELECT 'group', tenant, group_name, waiting, scheduled, enqueued, processing, retrying,
            completed, failed, canceled, 0, 0, id, false, NULL, NULL, NULL
        FROM gone WHERE queue IS NOT NULL AND group_name IS NOT NULL
    ), summed AS (
        SELECT kind, tenant, part, sum(waiting) AS waiting, sum(scheduled) AS scheduled,
            sum(enqueued) AS enqueued, sum(processing) AS processing, sum(retrying) AS retrying,
            sum(completed) AS completed, sum(failed) AS failed, sum(canceled) AS canceled,
            sum(bytes) AS bytes, sum(blocked) AS blocked,
            min(id) FILTER (WHERE enqueued > blocked) AS came,
            max(id) FILTER (WHERE served) AS turn,
            (array_agg(credit ORDER BY id DESC) FILTER (WHERE credit IS NOT NULL))[1] AS credit,
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
            -- A line that comes up goes to the end; so does one that was served.
            turn = CASE WHEN c.enqueued > c.blocked THEN greatest(c.turn, s.turn)
                ELSE coalesce(greatest(s.turn, s.came), c.turn) END,
            credit = coalesce(s.credit, c.credit)
        FROM summed s WHERE c.kind = s.kind AND c.tenant = s.tenant AND c.part = s.part
        RETURNING c.kind, c.tenant, c.part
    ), written AS (
        INSERT INTO holdfast.counts
        SELECT kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, true, coalesce(greatest(turn, came), 0),
            coalesce(credit, 0), 9223372036854775807, 9223372036854775807
        FROM summed s
        WHERE (s.kind, s.tenant, s.part) NOT IN (SELECT x.kind, x.tenant, x.part FROM changed x)
    ), touched AS (
        -- Who looks at scopes must hear of these still.
        INSERT INTO holdfast.deltas (tenant, group_name)
        SELECT DISTINCT g.tenant, g.group_name
        FROM gone g JOIN holdfast.ruled r ON r.tenant = g.tenant
        WHERE NOT pg_visible_in_snapshot(g.txid, seen)
    )
    SELECT (SELECT count(*) FROM gone) AS number,
        pg_snapshot_xmin(pg_current_snapshot()) AS horizon, (SELECT min(due) FROM gone) AS due,
        (SELECT min(held) FROM gone) AS held,
        array_agg(s.tenant) AS tenants, array_agg(s.part) AS queues,
        array_agg(s.head_rank) AS ranks, array_agg(s.head_seq) AS seqs
    INTO lines FROM summed s WHERE s.kind = 'queue';
    number := lines.number;
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

-- Notes where the living entries of indexes begin: of ready jobs in these lines (whose first new
-- ones are given), of leases, and of what is due. An old snapshot keeps dead entries in place, and
-- claims must not walk over them. What comes in later says so in its delta.
CREATE FUNCTION holdfast.raise_floors(
    tenants text[], queues text[], ranks bigint[], seqs bigint[], new_due bigint, new_held bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
    past bigint;
    held bigint;
BEGIN
    UPDATE holdfast.counts c SET floor_rank = coalesce(f.rank, 9223372036854775807),
        floor_seq = coalesce(f.seq, 9223372036854775807)
    FROM (
        SELECT u.tenant, u.queue, first.rank, first.seq
        FROM unnest(tenants, queues, ranks, seqs) AS u(tenant, queue, rank, seq)
        JOIN holdfast.counts k ON k.kind = 'queue' AND k.tenant = u.tenant AND k.part = u.queue
        CROSS JOIN LATERAL holdfast.earlier_of(k.floor_rank, k.floor_seq, u.rank, u.seq) low
        LEFT JOIN LATERAL (
            SELECT r.rank, r.seq FROM holdfast.ready r
            WHERE r.gate = 0 AND r.queue = u.queue AND r.tenant = u.tenant
                AND (r.rank, r.seq) >= (low.rank, low.seq)
            ORDER BY r.rank, r.seq LIMIT 1
        ) first ON true
    ) f
    WHERE c.kind = 'queue' AND c.tenant = f.tenant AND c.part = f.queue;
    SELECT last_value INTO last FROM holdfast.instants;
    SELECT least(due_floor, new_due), least(held_floor, new_held) INTO past, held
    FROM holdfast.heads;
    UPDATE holdfast.heads h SET held_floor = coalesce((
        SELECT l.until FROM holdfast.leases l WHERE NOT l.spent AND l.until >= held
        ORDER BY l.until LIMIT 1
    ), 9223372036854775807), due_floor = least(last, (
        SELECT d.run_at FROM holdfast.due d WHERE d.run_at >= past ORDER BY d.run_at LIMIT 1
    ));
END
$$;

-- The earlier of two places in a line: where its living entries began, and where new ones begin.
CREATE FUNCTION holdfast.earlier_of(
    floor_rank bigint, floor_seq bigint, head_rank bigint, head_seq bigint, OUT rank bigint,
    OUT seq bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF floor_rank IS NULL THEN
        rank := -9223372036854775808;
        seq := 0;
    ELSIF head_rank IS NULL OR head_rank > floor_rank THEN
        rank := floor_rank;
        seq := floor_seq;
    ELSE
        rank := head_rank;
        seq := CASE WHEN head_rank < floor_rank THEN head_seq ELSE least(head_seq, floor_seq) END;
    END IF;
END
$$;

-- From where on leases and due jobs are to be looked at.
CREATE FUNCTION holdfast.floors(OUT held bigint, OUT due bigint) LANGUAGE plpgsql AS $$
BEGIN
    SELECT least(h.held_floor, new.held), least(h.due_floor, new.due) INTO held, due
    FROM holdfast.heads h CROSS JOIN LATERAL (
        SELECT min(d.held) AS held, min(d.due) AS due FROM holdfast.deltas d WHERE d.txid >= h.floor
    ) new;
END
$$;

-- Folds when it is time to: about once a second, or when there is much.
CREATE FUNCTION holdfast.fold_in_time() RETURNS void LANGUAGE plpgsql AS $$
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
    END IF;
END
$$;

-- The counts of a scope as of now: what was added up, and what has changed since.
CREATE FUNCTION holdfast.tally(
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
        WHERE d.txid >= (SELECT floor FROM holdfast.heads) AND d.queue IS NOT NULL
            AND d.tenant = of_tenant AND CASE of_kind
                WHEN 'queue' THEN d.queue = of_part
                WHEN 'group' THEN d.group_name = of_part
                ELSE true END
    ) t;
END
$$;

-- By how much the jobs that run in ruled tenants are more than the counts say, by scope.
CREATE FUNCTION holdfast.running_more() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    more jsonb;
BEGIN
    WITH changed AS (
        SELECT d.tenant, d.queue, d.group_name, sum(d.processing) AS processing
        FROM holdfast.deltas d JOIN holdfast.ruled r ON r.tenant = d.tenant
        WHERE d.txid >= (SELECT floor FROM holdfast.heads) AND d.processing <> 0
        GROUP BY d.tenant, d.queue, d.group_name
    ), scoped AS (
        SELECT holdfast.scope_key('queue', tenant, queue) AS scope, processing FROM changed
        UNION ALL
        SELECT holdfast.scope_key('tenant', tenant, ''), processing FROM changed
        UNION ALL
        SELECT holdfast.scope_key('group', tenant, group_name), processing FROM changed
        WHERE group_name IS NOT NULL
    )
    SELECT coalesce(jsonb_object_agg(scope, processing), '{}') INTO more FROM (
        SELECT scope, sum(processing) AS processing FROM scoped GROUP BY scope
    ) s;
    RETURN more;
END
$$;

-- `more` with so many jobs of a line started.
CREATE FUNCTION holdfast.started(more jsonb, scope text, number bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT more || jsonb_build_object(scope, coalesce((more ->> scope)::bigint, 0) + number)
$$;
