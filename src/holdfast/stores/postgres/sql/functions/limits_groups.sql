-- Limits of groups: a job waits behind a gate until its group has room.

-- The limits for jobs of a group in a queue: the group's own settings first, then its queue's, then
-- its tier's. `open`: there are none.
CREATE OR REPLACE FUNCTION holdfast.group_limits(
    of_tenant text, of_group text, of_queue text,
    OUT limits holdfast.limits, OUT ordered boolean, OUT open boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    own holdfast.scopes;
    que holdfast.scopes;
    its holdfast.tiers := holdfast.tier_of_tenant(of_tenant);
BEGIN
    SELECT * INTO own FROM holdfast.scopes s
    WHERE s.kind = 'group' AND s.tenant = of_tenant AND s.part = of_group;
    SELECT * INTO que FROM holdfast.scopes s
    WHERE s.kind = 'queue' AND s.tenant = of_tenant AND s.part = of_queue;
    ordered := coalesce(own.ordered, que.groups_order, false);
    limits.max_running := CASE WHEN ordered THEN 1
        ELSE coalesce(own.max_running, que.groups_max, its.group_max) END;
    limits.price_us := coalesce(own.price_us, que.groups_price, its.group_price);
    limits.burst := coalesce(own.burst, que.groups_burst, its.group_burst);
    limits.paused := coalesce(own.paused, false);
    limits.slots_count := coalesce(own.slots_count, false);
    limits.rated := its.rated;
    limits.rated_at := its.rated_at;
    open := limits.max_running IS NULL AND limits.price_us IS NULL AND NOT limits.paused;
END
$$;

-- Opens the gate for as many jobs of a group as it has room for, in their order, but for no more
-- than a claim takes; true when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.admit_group(
    of_tenant text, of_group text, now bigint, more jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    gate record;
    has record;
    que text := '';
    wanted bigint[];
    more_left boolean := false;
    wakes boolean := false;
BEGIN
    LOOP
        SELECT j.queue INTO que FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
            AND j.group_name = of_group AND j.gate = 1 AND j.queue > que
        ORDER BY j.queue LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT * INTO gate FROM holdfast.group_limits(of_tenant, of_group, que);
        IF gate.open THEN
            wanted := ARRAY(
                SELECT j.seq FROM holdfast.jobs j
                WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
                    AND j.group_name = of_group AND j.gate = 1 AND j.queue = que
                ORDER BY -j.priority, j.seq LIMIT 1000
            );
            more_left := more_left OR cardinality(wanted) = 1000;
        ELSE
            SELECT * INTO has FROM holdfast.limit_room(
                'group', of_tenant, of_group, gate.limits, now, more
            );
            IF has.room = 0 THEN
                wakes := holdfast.schedule_reopen('group', of_tenant, of_group, has.opens_at)
                    OR wakes;
                CONTINUE;
            END IF;
            IF gate.ordered THEN
                wanted := holdfast.ordered_head(of_tenant, of_group, que);
            ELSE
                wanted := holdfast.admissible_jobs(
                    of_tenant, of_group, que, least(has.room, 1000)
                );
            END IF;
        END IF;
        PERFORM holdfast.set_gate(wanted, 0::smallint);
    END LOOP;
    IF more_left THEN
        -- The next claim goes on.
        INSERT INTO holdfast.deltas (tenant, group_name) VALUES (of_tenant, of_group);
    END IF;
    PERFORM holdfast.note_rest('group', of_tenant, of_group, EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
            AND j.group_name = of_group AND j.gate = 1
    ));
    RETURN wakes;
END
$$;

-- The first job of an ordered group, if it waits behind its gate in this queue.
CREATE OR REPLACE FUNCTION holdfast.ordered_head(of_tenant text, of_group text,
    of_queue text) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT h.seq FROM (
            SELECT j.seq, j.state, j.gate, j.late, j.queue FROM holdfast.jobs j
            WHERE j.group_name IS NOT NULL AND j.tenant = of_tenant AND j.group_name = of_group
            ORDER BY j.seq LIMIT 1
        ) h
        WHERE h.state = 'enqueued' AND h.gate = 1 AND h.late = 0 AND h.queue = of_queue
    );
END
$$;

-- The jobs of a group in a queue that fill its room, and those that come before one whose gate is
-- open already: a claim checks that together they do not exceed the room.
CREATE OR REPLACE FUNCTION holdfast.admissible_jobs(
    of_tenant text, of_group text, of_queue text, room bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    granted bigint;
    last_rank bigint;
    last_seq bigint;
BEGIN
    SELECT count(*) INTO granted FROM (
        SELECT 1 FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
            AND j.group_name = of_group AND j.gate = 0 AND j.queue = of_queue
            AND j.state = 'enqueued' LIMIT room
    ) g;
    IF granted > 0 THEN
        SELECT -j.priority, j.seq INTO last_rank, last_seq FROM holdfast.jobs j
        WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
            AND j.group_name = of_group AND j.gate = 0 AND j.queue = of_queue
            AND j.state = 'enqueued' ORDER BY -j.priority DESC, j.seq DESC LIMIT 1;
    END IF;
    RETURN ARRAY(
        SELECT w.seq FROM (
            SELECT -j.priority AS rank, j.seq,
                row_number() OVER (ORDER BY -j.priority, j.seq) AS place
            FROM holdfast.jobs j
            WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
                AND j.group_name = of_group AND j.gate = 1 AND j.queue = of_queue
            ORDER BY -j.priority, j.seq LIMIT room
        ) w
        WHERE w.place <= room - granted OR (w.rank, w.seq) < (last_rank, last_seq)
    );
END
$$;

-- Opens (0) or closes (1) the gate of these jobs. Jobs that another transaction has locked are
-- skipped: its change names their group again.
CREATE OR REPLACE FUNCTION holdfast.set_gate(seqs bigint[], value smallint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(seqs, '{}') = '{}' THEN
        RETURN;
    END IF;
    PERFORM holdfast.announce();
    WITH moved AS (
        UPDATE holdfast.jobs j SET gate = value
        WHERE j.ctid = ANY (ARRAY(
            SELECT f.ctid FROM holdfast.jobs f WHERE f.seq = ANY (seqs) FOR UPDATE SKIP LOCKED
        )) AND j.state = 'enqueued' AND j.late = 0 AND j.gate = 1 - value
        RETURNING j.tenant, j.queue, j.group_name, j.priority, j.seq
    )
    INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked, head_rank, head_seq)
    SELECT tenant, queue, group_name, count(*) * (2 * value - 1),
        CASE WHEN value = 0 THEN min(-priority) END, CASE WHEN value = 0 THEN min(seq) END
    FROM moved
    GROUP BY tenant, queue, group_name;
END
$$;

-- Sorts the jobs of a group anew after its limits have changed; NULL: of all groups of the tenant.
CREATE OR REPLACE FUNCTION holdfast.reset_group_gates(of_tenant text, of_group text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM holdfast.set_gate(ARRAY(
        SELECT j.seq FROM (
            SELECT DISTINCT g.group_name, g.queue FROM holdfast.jobs g
            WHERE g.group_name IS NOT NULL AND g.late = 0 AND g.tenant = of_tenant
                AND (of_group IS NULL OR g.group_name = of_group) AND g.gate = 0
        ) part
        CROSS JOIN LATERAL holdfast.group_limits(of_tenant, part.group_name, part.queue) rules
        JOIN holdfast.jobs j ON j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
            AND j.group_name = part.group_name AND j.gate = 0 AND j.queue = part.queue
        WHERE NOT rules.open AND j.state = 'enqueued'
    ), 1::smallint);
    INSERT INTO holdfast.deltas (tenant, group_name)
    SELECT DISTINCT j.tenant, j.group_name FROM holdfast.jobs j
    WHERE j.group_name IS NOT NULL AND j.late = 0 AND j.tenant = of_tenant
        AND (of_group IS NULL OR j.group_name = of_group);
END
$$;

-- The same for all groups of a tenant, after the limits that a queue sets for groups have changed.
CREATE OR REPLACE FUNCTION holdfast.cap_group_buckets(of_tenant text, of_queue text,
    now bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE holdfast.buckets b SET full_at = least(b.full_at, now + g.burst * g.price_us),
        rated = nextval('holdfast.cursors')
    FROM (
        SELECT o.part, (rules.limits).burst, (rules.limits).price_us FROM holdfast.buckets o
        CROSS JOIN LATERAL holdfast.group_limits(of_tenant, o.part, of_queue) rules
        WHERE o.kind = 'group' AND o.tenant = of_tenant
    ) g
    WHERE b.kind = 'group' AND b.tenant = of_tenant AND b.part = g.part AND g.price_us IS NOT NULL
$$;
