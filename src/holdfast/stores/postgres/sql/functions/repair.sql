-- What a claim does first: due jobs and lapsed leases become ready, expired jobs leave their lines.

-- Brings what a claim reads up to this instant. From where on it reads due jobs and leases; whether
-- limits of the platform concern it, whether sleepers must be told of a new instant; and where
-- there are tiers, or were, what it has looked at again and how much without room it may meet.
CREATE OR REPLACE FUNCTION holdfast.prepare_claim(
    in_tenants text[], most integer, now bigint, events boolean, repair_most integer,
    repair_passes integer, OUT due bigint, OUT held bigint, OUT platform boolean,
    OUT wakes boolean, OUT looks holdfast.looking, OUT full_left bigint
) LANGUAGE plpgsql AS $$
DECLARE
    low record;
BEGIN
    SELECT * INTO low FROM holdfast.scan_floors();
    wakes := holdfast.repair(now, low.due, low.held, events, repair_most, repair_passes);
    IF low.fold_is_due THEN
        PERFORM holdfast.fold_deltas(10000);
        PERFORM holdfast.delete_old_claims(now);
    END IF;
    due := low.due;
    held := low.held;
    platform := low.platform;
    IF low.tiered THEN
        full_left := repair_most * repair_passes;
        looks := ROW(
            least(greatest(most, 50), repair_most), full_left, NULL, true, false, false
        );
        looks := holdfast.look_again(in_tenants, now, looks);
    END IF;
END
$$;

-- Whether a claim may find something to take, to repair, or to repeat. Takes no lock.
CREATE OR REPLACE FUNCTION holdfast.claim_is_due(
    in_tenants text[], in_queues text[], own text, now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF holdfast.has_backlog() THEN
        RETURN true;
    END IF;
    RETURN holdfast.can_claim(in_tenants, in_queues, now) OR holdfast.repair_is_due(now)
        OR holdfast.scopes_need_refresh()
        OR EXISTS (SELECT FROM holdfast.claims c WHERE c.nonce = own);
END
$$;

-- Brings jobs and scopes up to this instant, within the bounds of core/bounds.py. The caller has
-- the lock of claims. True when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.repair(
    now bigint, low_due bigint, low_held bigint, events boolean, most integer, passes integer
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    moved bigint;
    is_due boolean;
    is_lapsed boolean;
    opens boolean;
    past boolean;
BEGIN
    FOR pass IN 1..passes LOOP
        moved := 0;
        SELECT EXISTS (
            SELECT FROM holdfast.jobs
            WHERE gate = 2 AND late = 0 AND run_at >= low_due AND run_at <= now
        ), EXISTS (
            SELECT FROM holdfast.leases WHERE NOT spent AND until >= low_held AND until <= now
        ), EXISTS (SELECT FROM holdfast.reopen_times WHERE at <= now), EXISTS (
            SELECT FROM holdfast.jobs
            WHERE expires_at IS NOT NULL
                AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying')
                AND late = 0 AND expires_at <= now
        ) INTO is_due, is_lapsed, opens, past;
        EXIT WHEN NOT (is_due OR is_lapsed OR opens OR past);
        IF is_due THEN
            moved := moved + holdfast.promote_due(now, low_due, most);
        END IF;
        IF is_lapsed THEN
            moved := moved + holdfast.requeue_lapsed(now, low_held, most, events);
        END IF;
        IF opens THEN
            moved := moved + holdfast.reopen_scopes(now, most);
        END IF;
        -- Last, for the jobs made ready just now may have outlived their time too.
        IF past OR is_lapsed THEN
            moved := moved + holdfast.set_expired_aside(now, most);
        END IF;
        EXIT WHEN moved < most;
    END LOOP;
    RETURN holdfast.refresh_scopes(now, most * passes);
END
$$;

-- True when a claim would have something to repair.
CREATE OR REPLACE FUNCTION holdfast.repair_is_due(now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    low record;
BEGIN
    SELECT * INTO low FROM holdfast.scan_floors();
    RETURN EXISTS (
        SELECT FROM holdfast.jobs
        WHERE gate = 2 AND late = 0 AND run_at >= low.due AND run_at <= now
    ) OR EXISTS (
        SELECT FROM holdfast.leases WHERE NOT spent AND until >= low.held AND until <= now
    ) OR EXISTS (SELECT FROM holdfast.reopen_times WHERE at <= now);
END
$$;

-- Makes jobs whose instant has come ready.
CREATE OR REPLACE FUNCTION holdfast.promote_due(now bigint, low bigint, most integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM holdfast.announce();
    WITH found AS MATERIALIZED (
        SELECT j.ctid, j.seq, j.state FROM holdfast.jobs j
        WHERE j.gate = 2 AND j.late = 0 AND j.run_at >= low AND j.run_at <= now
        ORDER BY j.run_at LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', gate = CASE
            WHEN j.group_name IS NOT NULL AND holdfast.limits_groups(j.tenant) THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT found.ctid FROM found))
        RETURNING j.seq, j.tenant, j.queue, j.group_name, j.gate, j.priority
    ), counted AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, scheduled, retrying, enqueued, blocked, head_rank, head_seq)
        SELECT m.tenant, m.queue, m.group_name,
            -count(*) FILTER (WHERE found.state = 'scheduled'),
            -count(*) FILTER (WHERE found.state = 'retrying'), count(*), sum(m.gate),
            min(-m.priority) FILTER (WHERE m.gate = 0), min(m.seq) FILTER (WHERE m.gate = 0)
        FROM moved m JOIN found ON found.seq = m.seq
        GROUP BY m.tenant, m.queue, m.group_name ORDER BY min(m.seq)
    )
    SELECT count(*) INTO number FROM moved;
    RETURN number;
END
$$;

-- Makes jobs whose leases lapsed ready again, those with attempts left. Also deletes the rows of
-- `leases` whose jobs have all ended in time.
CREATE OR REPLACE FUNCTION holdfast.requeue_lapsed(
    now bigint, low bigint, most integer, events boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    lapsed tid[] := ARRAY(
        SELECT l.ctid FROM holdfast.leases l
        WHERE NOT l.spent AND l.until >= low AND l.until <= now ORDER BY l.until LIMIT 20
    );
    number bigint;
BEGIN
    PERFORM holdfast.announce();
    WITH found AS MATERIALIZED (
        SELECT job.ctid FROM (
            SELECT n.seq FROM holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS n(seq)
            WHERE l.ctid = ANY (lapsed) GROUP BY n.seq ORDER BY min(l.until), n.seq
        ) u CROSS JOIN LATERAL (
            SELECT j.ctid FROM holdfast.jobs j
            WHERE j.seq = u.seq AND j.state = 'processing' AND j.attempt < j.max_attempts
                AND j.lease_until <= now
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) job LIMIT most
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', lapses = j.lapses + 1, updated_at = now,
            gate = CASE
                WHEN j.group_name IS NOT NULL AND holdfast.limits_groups(j.tenant) THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT found.ctid FROM found))
        RETURNING j.seq, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence, j.group_name, j.gate,
            j.priority, j.lease_until
    ), counted AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, type, processing, enqueued, blocked, head_rank, head_seq)
        SELECT tenant, queue, group_name, type, -count(*), count(*), sum(gate),
            min(-priority) FILTER (WHERE gate = 0), min(seq) FILTER (WHERE gate = 0)
        FROM moved GROUP BY tenant, queue, group_name, type ORDER BY min(seq)
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'rescued', m.tenant, m.id, m.queue, m.type,
            m.attempt, m.fence
        FROM (SELECT * FROM moved ORDER BY lease_until, seq) m WHERE events
    )
    SELECT count(*) INTO number FROM moved;
    -- A row stays while somebody has a lock on one of its jobs, since that transaction may roll
    -- back.
    DELETE FROM holdfast.leases l WHERE l.ctid = ANY (lapsed) AND NOT EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.seq = ANY (l.seqs) AND j.state = 'processing' AND j.attempt < j.max_attempts
            AND j.lease_until <= now
    );
    -- There may be more where so many leases were looked at.
    RETURN CASE WHEN cardinality(lapsed) >= 20 THEN most ELSE number END;
END
$$;

-- Takes jobs that outlived their time to live out of their lines. Upkeep fails them; no claim reads
-- them.
CREATE OR REPLACE FUNCTION holdfast.set_expired_aside(now bigint, most integer)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM holdfast.announce();
    WITH past AS (
        SELECT j.ctid FROM holdfast.jobs j
        WHERE j.expires_at IS NOT NULL
            AND j.state IN ('waiting', 'scheduled', 'enqueued', 'retrying')
            AND j.late = 0 AND j.expires_at <= now LIMIT most FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE holdfast.jobs j SET late = 1
        WHERE j.ctid = ANY (ARRAY(SELECT past.ctid FROM past))
        RETURNING j.tenant, j.queue, j.group_name,
            (j.state = 'enqueued' AND j.gate = 0) AS was_line
    ), counted AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked)
        SELECT tenant, queue, group_name, count(*) FROM moved WHERE was_line
        GROUP BY tenant, queue, group_name
    )
    SELECT count(*) INTO number FROM moved;
    RETURN number;
END
$$;

-- Names the scopes that time may have opened, for `refresh_scopes`.
CREATE OR REPLACE FUNCTION holdfast.reopen_scopes(now bigint, most integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    PERFORM holdfast.announce();
    WITH past AS (
        SELECT r.kind, r.tenant, r.part FROM holdfast.reopen_times r
        WHERE r.at <= now ORDER BY r.at LIMIT most
    ), gone AS (
        DELETE FROM holdfast.reopen_times r USING past p
        WHERE r.kind = p.kind AND r.tenant = p.tenant AND r.part = p.part
        RETURNING r.kind, r.tenant, r.part
    ), counted AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name)
        SELECT g.tenant, c.part, CASE WHEN g.kind = 'group' THEN g.part END
        FROM gone g LEFT JOIN LATERAL (
            SELECT x.part FROM holdfast.counts x
            WHERE g.kind = 'queue' AND x.kind = 'queue' AND x.tenant = g.tenant AND x.part = g.part
            LIMIT 1
        ) c ON true
    )
    SELECT count(*) INTO number FROM gone;
    RETURN number;
END
$$;

-- From where on leases and due jobs have to be read, whether a claim has to fold the deltas: when
-- there are many, or once a second; whether limits of the platform concern it, and whether there
-- are tiers, or were.
CREATE OR REPLACE FUNCTION holdfast.scan_floors(
    OUT held bigint, OUT due bigint, OUT fold_is_due boolean, OUT platform boolean,
    OUT tiered boolean
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT least(h.leases_floor, new.held), least(h.due_floor, new.due), new.number > h.fold_at
        OR new.number > 0 AND h.folded_at < clock_timestamp() - interval '1 second',
        h.platform, h.tiered
    INTO held, due, fold_is_due, platform, tiered
    FROM holdfast.store_state h CROSS JOIN LATERAL (
        SELECT min(d.leases_until) AS held, min(d.due) AS due, count(*) AS number
        FROM holdfast.deltas d WHERE d.id >= h.deltas_floor
    ) new;
END
$$;
