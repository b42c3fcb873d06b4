-- What a claim does first: due jobs and lapsed leases become ready, late ones leave the order.

-- True when there is something to repair.
CREATE FUNCTION holdfast.overdue(now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    low record;
BEGIN
    SELECT * INTO low FROM holdfast.floors();
    RETURN EXISTS (SELECT FROM holdfast.due WHERE run_at >= low.due AND run_at <= now)
        OR EXISTS (
            SELECT FROM holdfast.leases WHERE NOT spent AND until >= low.held AND until <= now
        ) OR EXISTS (SELECT FROM holdfast.reopen WHERE at <= now);
END
$$;

-- Puts jobs where their states say. The caller has their locks, and they stand nowhere.
CREATE FUNCTION holdfast.stand(of_seqs bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.ready
    SELECT j.seq, -j.priority, j.run_at, j.expires_at, CASE j.late WHEN 1 THEN 2 ELSE j.gate END,
        j.tenant, j.queue, j.group_name
    FROM holdfast.jobs j WHERE j.seq = ANY (of_seqs) AND j.state = 'enqueued';
    INSERT INTO holdfast.due
    SELECT j.seq, j.run_at FROM holdfast.jobs j
    WHERE j.seq = ANY (of_seqs) AND j.state IN ('scheduled', 'retrying') AND j.late = 0;
END
$$;

CREATE FUNCTION holdfast.promote(now bigint, low bigint, most integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    moved bigint[];
BEGIN
    WITH found AS MATERIALIZED (
        SELECT job.ctid, job.seq, job.state
        FROM (
            SELECT d.seq FROM holdfast.due d WHERE d.run_at >= low AND d.run_at <= now
            ORDER BY d.run_at LIMIT most
        ) d CROSS JOIN LATERAL (
            SELECT j.ctid, j.seq, j.state FROM holdfast.jobs j
            WHERE j.seq = d.seq AND j.state IN ('scheduled', 'retrying') AND j.run_at <= now
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) job
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', gate = CASE
            WHEN j.group_name IS NOT NULL
                AND EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = j.tenant AND r.grouped)
            THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT found.ctid FROM found))
        RETURNING j.seq, j.tenant, j.queue, j.group_name, j.gate, j.priority
    ), left_ AS (
        DELETE FROM holdfast.due WHERE seq = ANY (ARRAY(SELECT m.seq FROM moved m))
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, scheduled, retrying, enqueued, blocked, head_rank, head_seq)
        SELECT m.tenant, m.queue, m.group_name,
            -count(*) FILTER (WHERE found.state = 'scheduled'),
            -count(*) FILTER (WHERE found.state = 'retrying'), count(*), sum(m.gate),
            min(-m.priority) FILTER (WHERE m.gate = 0), min(m.seq) FILTER (WHERE m.gate = 0)
        FROM moved m JOIN found ON found.seq = m.seq
        GROUP BY m.tenant, m.queue, m.group_name ORDER BY min(m.seq)
    )
    SELECT array_agg(m.seq) INTO moved FROM moved m;
    PERFORM holdfast.stand(moved);
    RETURN coalesce(cardinality(moved), 0);
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
        RETURNING j.seq, j.tenant, j.queue, j.group_name,
            (j.state = 'enqueued' AND j.gate = 0) AS stood
    ), out_of_line AS (
        UPDATE holdfast.ready SET gate = 2 WHERE seq = ANY (ARRAY(SELECT m.seq FROM moved m))
    ), not_due AS (
        DELETE FROM holdfast.due WHERE seq = ANY (ARRAY(SELECT m.seq FROM moved m))
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
        SELECT EXISTS (SELECT FROM holdfast.due WHERE run_at >= low.due AND run_at <= now), EXISTS (
            SELECT FROM holdfast.leases WHERE NOT spent AND until >= low.held AND until <= now
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
