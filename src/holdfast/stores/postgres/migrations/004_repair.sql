-- What a claim does first: due jobs and lapsed leases become ready, late ones leave the order.

-- True when there is something to repair.
CREATE FUNCTION holdfast.overdue(now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    low record;
BEGIN
    SELECT * INTO low FROM holdfast.floors();
    RETURN EXISTS (
        SELECT FROM holdfast.jobs
        WHERE state IN ('scheduled', 'retrying') AND late = 0
            AND run_at >= low.due AND run_at <= now
    ) OR EXISTS (
        SELECT FROM holdfast.jobs
        WHERE state = 'processing' AND attempt < max_attempts
            AND lease_until >= low.held AND lease_until <= now
    ) OR EXISTS (SELECT FROM holdfast.reopen WHERE at <= now);
END
$$;

CREATE FUNCTION holdfast.promote(now bigint, low bigint, most integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    WITH due AS (
        SELECT j.ctid, j.seq, j.state FROM holdfast.jobs j
        WHERE j.state IN ('scheduled', 'retrying') AND j.late = 0
            AND j.run_at >= low AND j.run_at <= now
        ORDER BY j.run_at LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', gate = CASE
            WHEN j.group_name IS NOT NULL
                AND EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = j.tenant AND r.grouped)
            THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT due.ctid FROM due))
        RETURNING j.seq, j.tenant, j.queue, j.group_name, j.gate, j.priority
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, scheduled, retrying, enqueued, blocked, head_rank, head_seq)
        SELECT m.tenant, m.queue, m.group_name, -count(*) FILTER (WHERE due.state = 'scheduled'),
            -count(*) FILTER (WHERE due.state = 'retrying'), count(*), sum(m.gate),
            min(-m.priority) FILTER (WHERE m.gate = 0), min(m.seq) FILTER (WHERE m.gate = 0)
        FROM moved m JOIN due ON due.seq = m.seq
        GROUP BY m.tenant, m.queue, m.group_name ORDER BY min(m.seq)
    )
    SELECT count(*) INTO number FROM moved;
    RETURN number;
END
$$;

CREATE FUNCTION holdfast.rescue(now bigint, low bigint, most integer, events boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    WITH lapsed AS (
        SELECT j.ctid FROM holdfast.jobs j
        WHERE j.state = 'processing' AND j.attempt < j.max_attempts
            AND j.lease_until >= low AND j.lease_until <= now
        ORDER BY j.lease_until LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', lapses = j.lapses + 1, updated_at = now,
            gate = CASE WHEN j.group_name IS NOT NULL
                AND EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = j.tenant AND r.grouped)
            THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT lapsed.ctid FROM lapsed))
        RETURNING j.seq, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence, j.group_name, j.gate,
            j.priority, j.lease_until
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, processing, enqueued, blocked, head_rank, head_seq)
        SELECT tenant, queue, group_name, -count(*), count(*), sum(gate),
            min(-priority) FILTER (WHERE gate = 0), min(seq) FILTER (WHERE gate = 0)
        FROM moved GROUP BY tenant, queue, group_name ORDER BY min(seq)
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'rescued', m.tenant, m.id, m.queue, m.type,
            m.attempt, m.fence
        FROM (SELECT * FROM moved ORDER BY lease_until, seq) m WHERE events
    )
    SELECT count(*) INTO number FROM moved;
    RETURN number;
END
$$;

-- Jobs past their time to live leave the order: upkeep fails them, no claim walks over them.
CREATE FUNCTION holdfast.retire(now bigint, most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    WITH past AS (
        SELECT j.ctid FROM holdfast.jobs j
        WHERE j.expires_at IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'enqueued', 'retrying')
            AND j.late = 0 AND j.expires_at <= now LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE holdfast.jobs j SET late = 1
        WHERE j.ctid = ANY (ARRAY(SELECT past.ctid FROM past))
        RETURNING j.tenant, j.queue, j.group_name, (j.state = 'enqueued' AND j.gate = 0) AS stood
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked)
        SELECT tenant, queue, group_name, count(*) FROM moved WHERE stood
        GROUP BY tenant, queue, group_name
    )
    SELECT count(*) INTO number FROM moved;
    RETURN number;
END
$$;

-- Names the scopes that time may have opened, for `look`.
CREATE FUNCTION holdfast.reopen_past(now bigint, most integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    WITH past AS (
        SELECT r.kind, r.tenant, r.part FROM holdfast.reopen r
        WHERE r.at <= now ORDER BY r.at LIMIT most
    ), gone AS (
        DELETE FROM holdfast.reopen r USING past p
        WHERE r.kind = p.kind AND r.tenant = p.tenant AND r.part = p.part
        RETURNING r.kind, r.tenant, r.part
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, group_name)
        SELECT tenant, CASE WHEN kind = 'group' THEN part END FROM gone
    )
    SELECT count(*) INTO number FROM gone;
    RETURN number;
END
$$;

-- Brings all up to this instant, within the bounds of limits.py. The caller has the lock of claims.
CREATE FUNCTION holdfast.repair(
    now bigint, events boolean, most integer, passes integer
) RETURNS boolean LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    moved bigint;
    is_due boolean;
    is_lapsed boolean;
    opens boolean;
    past boolean;
    low record;
BEGIN
    SELECT * INTO low FROM holdfast.floors();
    FOR pass IN 1..passes LOOP
        moved := 0;
        SELECT EXISTS (
            SELECT FROM holdfast.jobs
            WHERE state IN ('scheduled', 'retrying') AND late = 0
                AND run_at >= low.due AND run_at <= now
        ), EXISTS (
            SELECT FROM holdfast.jobs
            WHERE state = 'processing' AND attempt < max_attempts
                AND lease_until >= low.held AND lease_until <= now
        ), EXISTS (SELECT FROM holdfast.reopen WHERE at <= now), EXISTS (
            SELECT FROM holdfast.jobs
            WHERE expires_at IS NOT NULL
                AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying')
                AND late = 0 AND expires_at <= now
        ) INTO is_due, is_lapsed, opens, past;
        EXIT WHEN NOT (is_due OR is_lapsed OR opens OR past);
        IF is_due THEN
            moved := moved + holdfast.promote(now, low.due, most);
        END IF;
        IF is_lapsed THEN
            moved := moved + holdfast.rescue(now, low.held, most, events);
        END IF;
        IF opens THEN
            moved := moved + holdfast.reopen_past(now, most);
        END IF;
        -- Last, for the jobs made ready just now may have outlived their time too.
        IF past OR is_lapsed THEN
            moved := moved + holdfast.retire(now, most);
        END IF;
        EXIT WHEN moved < most;
    END LOOP;
    RETURN holdfast.look(now);
END
$$;
