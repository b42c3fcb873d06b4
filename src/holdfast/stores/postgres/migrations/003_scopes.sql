-- What may start now, as the limits, rates, pauses and slots of scopes say; and who waits for it.
-- All of it runs under the lock of claims, but for reads of `unlooked`.

-- What holds for the jobs of a group in a queue: the group's own word first, then its queue's.
CREATE FUNCTION holdfast.group_gate(
    of_tenant text, of_group text, of_queue text,
    OUT max_running bigint, OUT price_us bigint, OUT burst bigint, OUT ordered boolean,
    OUT paused boolean, OUT slots_count boolean, OUT open boolean
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    own holdfast.scopes;
    que holdfast.scopes;
BEGIN
    SELECT * INTO own FROM holdfast.scopes s
    WHERE s.kind = 'group' AND s.tenant = of_tenant AND s.part = of_group;
    SELECT * INTO que FROM holdfast.scopes s
    WHERE s.kind = 'queue' AND s.tenant = of_tenant AND s.part = of_queue;
    ordered := coalesce(own.ordered, que.groups_order, false);
    max_running := CASE WHEN ordered THEN 1 ELSE coalesce(own.max_running, que.groups_max) END;
    IF own.price_us IS NOT NULL THEN
        price_us := own.price_us;
        burst := own.burst;
    ELSE
        price_us := que.groups_price;
        burst := que.groups_burst;
    END IF;
    paused := coalesce(own.paused, false);
    slots_count := coalesce(own.slots_count, false);
    open := max_running IS NULL AND price_us IS NULL AND NOT paused;
END
$$;

-- How many jobs of a scope may start, and when time alone may make more room.
CREATE FUNCTION holdfast.room(
    of_kind text, of_tenant text, of_part text, max_running bigint, price_us bigint, burst bigint,
    paused boolean, slots_count boolean, now bigint, more jsonb, OUT room bigint,
    OUT opens_at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    running bigint;
    slots bigint := 0;
    full_at bigint;
    tokens bigint;
BEGIN
    room := 1::bigint << 60;
    IF max_running IS NOT NULL THEN
        SELECT c.processing INTO running FROM holdfast.counts c
        WHERE c.kind = of_kind AND c.tenant = of_tenant AND c.part = of_part;
        running := coalesce(running, 0)
            + coalesce((more ->> holdfast.scope_key(of_kind, of_tenant, of_part))::bigint, 0);
        IF slots_count THEN
            SELECT count(*), min(h.until) INTO slots, opens_at FROM holdfast.holds h
            WHERE h.kind = of_kind AND h.tenant = of_tenant AND h.part = of_part AND h.until > now;
        END IF;
        room := max_running - running - slots;
    END IF;
    IF price_us IS NOT NULL THEN
        SELECT b.full_at INTO full_at FROM holdfast.buckets b
        WHERE b.kind = of_kind AND b.tenant = of_tenant AND b.part = of_part;
        full_at := coalesce(full_at, 0);
        tokens := burst - (greatest(0, full_at - now) + price_us - 1) / price_us;
        IF tokens <= 0 THEN
            opens_at := least(opens_at, full_at - (burst - 1) * price_us);
        END IF;
        room := least(room, tokens);
    END IF;
    IF paused THEN
        room := 0;
    END IF;
    room := greatest(0, room);
END
$$;

-- The room of a tenant or a queue.
CREATE FUNCTION holdfast.scope_room(
    of_kind text, of_tenant text, of_part text, now bigint, more jsonb, OUT room bigint,
    OUT opens_at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    own holdfast.scopes;
BEGIN
    SELECT * INTO own FROM holdfast.scopes s
    WHERE s.kind = of_kind AND s.tenant = of_tenant AND s.part = of_part;
    IF NOT FOUND THEN
        room := 1::bigint << 60;
        RETURN;
    END IF;
    SELECT r.room, r.opens_at INTO room, opens_at FROM holdfast.room(
        of_kind, of_tenant, of_part, own.max_running, own.price_us, own.burst, own.paused,
        own.slots_count, now, more
    ) r;
END
$$;

-- Takes the tokens of jobs that start.
CREATE FUNCTION holdfast.spend(
    of_kind text, of_tenant text, of_part text, price_us bigint, number bigint, now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF price_us IS NOT NULL AND number > 0 THEN
        INSERT INTO holdfast.buckets AS b VALUES (
            of_kind, of_tenant, of_part, now + number * price_us
        ) ON CONFLICT (kind, tenant, part)
        DO UPDATE SET full_at = greatest(b.full_at, now) + number * price_us;
    END IF;
END
$$;

-- Remembers when time alone will make room; true when sleepers must hear of it.
CREATE FUNCTION holdfast.reopen_later(
    of_kind text, of_tenant text, of_part text, opens_at bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF opens_at IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.reopen AS r VALUES (of_kind, of_tenant, of_part, opens_at)
    ON CONFLICT (kind, tenant, part) DO UPDATE SET at = excluded.at WHERE r.at > excluded.at;
    RETURN FOUND;
END
$$;

-- Lets as many of a group's jobs into their lines as it has room for, the first first.
CREATE FUNCTION holdfast.grant_group(
    of_tenant text, of_group text, now bigint, more jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    gate record;
    has record;
    que text := '';
    wanted bigint[];
    rings boolean := false;
BEGIN
    LOOP
        SELECT r.queue INTO que FROM holdfast.ready r
        WHERE r.group_name IS NOT NULL AND r.tenant = of_tenant AND r.group_name = of_group
            AND r.gate = 1 AND r.queue > que
        ORDER BY r.queue LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT * INTO gate FROM holdfast.group_gate(of_tenant, of_group, que);
        IF gate.open THEN
            wanted := ARRAY(
                SELECT r.seq FROM holdfast.ready r
                WHERE r.group_name IS NOT NULL AND r.tenant = of_tenant
                    AND r.group_name = of_group AND r.gate = 1 AND r.queue = que
            );
        ELSE
            SELECT * INTO has FROM holdfast.room(
                'group', of_tenant, of_group, gate.max_running, gate.price_us, gate.burst,
                gate.paused, gate.slots_count, now, more
            );
            IF has.room = 0 THEN
                rings := holdfast.reopen_later('group', of_tenant, of_group, has.opens_at) OR rings;
                CONTINUE;
            END IF;
            IF gate.ordered THEN
                wanted := holdfast.head_of(of_tenant, of_group, que);
            ELSE
                wanted := holdfast.first_of(of_tenant, of_group, que, has.room);
            END IF;
        END IF;
        PERFORM holdfast.put_gate(wanted, 0::smallint);
    END LOOP;
    RETURN rings;
END
$$;

-- The first job of an ordered group, if it waits in this queue.
CREATE FUNCTION holdfast.head_of(of_tenant text, of_group text, of_queue text) RETURNS bigint[]
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

-- The jobs of a part that fill its room, and those that come before one that stands in the line
-- already: the claim will see that together they do not exceed it.
CREATE FUNCTION holdfast.first_of(
    of_tenant text, of_group text, of_queue text, room bigint
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    granted bigint;
    last_rank bigint;
    last_seq bigint;
BEGIN
    SELECT count(*) INTO granted FROM (
        SELECT 1 FROM holdfast.ready r
        WHERE r.group_name IS NOT NULL AND r.tenant = of_tenant AND r.group_name = of_group
            AND r.gate = 0 AND r.queue = of_queue LIMIT room
    ) g;
    IF granted > 0 THEN
        SELECT r.rank, r.seq INTO last_rank, last_seq FROM holdfast.ready r
        WHERE r.group_name IS NOT NULL AND r.tenant = of_tenant AND r.group_name = of_group
            AND r.gate = 0 AND r.queue = of_queue ORDER BY r.rank DESC, r.seq DESC LIMIT 1;
    END IF;
    RETURN ARRAY(
        SELECT w.seq FROM (
            SELECT r.rank, r.seq, row_number() OVER (ORDER BY r.rank, r.seq) AS place
            FROM holdfast.ready r
            WHERE r.group_name IS NOT NULL AND r.tenant = of_tenant AND r.group_name = of_group
                AND r.gate = 1 AND r.queue = of_queue ORDER BY r.rank, r.seq LIMIT room
        ) w
        WHERE w.place <= room - granted OR (w.rank, w.seq) < (last_rank, last_seq)
    );
END
$$;

-- Lets these jobs into their lines, or takes them out. Who is being changed just now is left to
-- the change, which names the group again.
CREATE FUNCTION holdfast.put_gate(seqs bigint[], value smallint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH moved AS (
        UPDATE holdfast.jobs j SET gate = value
        WHERE j.ctid = ANY (ARRAY(
            SELECT f.ctid FROM holdfast.jobs f WHERE f.seq = ANY (seqs) FOR UPDATE SKIP LOCKED
        )) AND j.state = 'enqueued' AND j.late = 0 AND j.gate = 1 - value
        RETURNING j.tenant, j.queue, j.group_name, j.priority, j.seq
    ), placed AS (
        UPDATE holdfast.ready r SET gate = value
        WHERE r.seq = ANY (ARRAY(SELECT moved.seq FROM moved))
    )
    INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked, head_rank, head_seq)
    SELECT tenant, queue, group_name, count(*) * (2 * value - 1),
        CASE WHEN value = 0 THEN min(-priority) END, CASE WHEN value = 0 THEN min(seq) END
    FROM moved
    GROUP BY tenant, queue, group_name;
END
$$;

-- Opens and closes the lines of a tenant.
CREATE FUNCTION holdfast.refresh_tenant(of_tenant text, now bigint, more jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    whole record;
    its record;
    line record;
    is_open boolean;
    rings boolean := false;
BEGIN
    SELECT * INTO whole FROM holdfast.scope_room('tenant', of_tenant, '', now, more);
    IF whole.room = 0 THEN
        rings := holdfast.reopen_later('tenant', of_tenant, '', whole.opens_at);
    END IF;
    FOR line IN
        SELECT c.part AS queue, c.open FROM holdfast.counts c
        WHERE c.kind = 'queue' AND c.tenant = of_tenant
        UNION ALL
        SELECT DISTINCT d.queue, true FROM holdfast.deltas d
        WHERE d.txid >= (SELECT floor FROM holdfast.heads)
            AND d.tenant = of_tenant AND d.queue IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM holdfast.counts c
                WHERE c.kind = 'queue' AND c.tenant = of_tenant AND c.part = d.queue
            )
    LOOP
        SELECT * INTO its FROM holdfast.scope_room('queue', of_tenant, line.queue, now, more);
        IF its.room = 0 THEN
            rings := holdfast.reopen_later('queue', of_tenant, line.queue, its.opens_at) OR rings;
        END IF;
        is_open := whole.room > 0 AND its.room > 0;
        IF is_open <> line.open THEN
            INSERT INTO holdfast.counts (kind, tenant, part, open, turn, floor_rank, floor_seq)
            VALUES ('queue', of_tenant, line.queue, is_open, nextval('holdfast.turns'),
                9223372036854775807, 9223372036854775807)
            ON CONFLICT (kind, tenant, part)
            DO UPDATE SET open = excluded.open, turn = excluded.turn;
        END IF;
    END LOOP;
    RETURN rings;
END
$$;

-- True when deltas name scopes that nobody has looked at since.
CREATE FUNCTION holdfast.unlooked() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.ruled) AND EXISTS (
        SELECT FROM holdfast.deltas d JOIN holdfast.ruled r ON r.tenant = d.tenant
        WHERE d.txid >= (SELECT floor FROM holdfast.heads)
            AND NOT pg_visible_in_snapshot(d.txid, (SELECT holdfast.last_look()))
    );
END
$$;

-- Lets go on what has room now, and closes what has none: jobs of groups, then lines. True when
-- sleepers must hear of an instant that is new.
CREATE FUNCTION holdfast.look(now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot;
    tenants text[];
    groups text[][];
    tenant text;
    more jsonb;
    rings boolean := false;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.ruled) THEN
        RETURN false;
    END IF;
    SELECT pg_current_snapshot(), array_agg(DISTINCT d.tenant),
        array_agg(DISTINCT ARRAY[d.tenant, d.group_name]) FILTER (WHERE d.group_name IS NOT NULL)
    INTO seen, tenants, groups
    FROM holdfast.deltas d JOIN holdfast.ruled r ON r.tenant = d.tenant
    WHERE d.txid >= (SELECT floor FROM holdfast.heads)
        AND NOT pg_visible_in_snapshot(d.txid, (SELECT holdfast.last_look()));
    IF tenants IS NULL THEN
        RETURN false;
    END IF;
    more := holdfast.running_more();
    FOR i IN 1..coalesce(array_length(groups, 1), 0) LOOP
        rings := holdfast.grant_group(groups[i][1], groups[i][2], now, more) OR rings;
    END LOOP;
    FOREACH tenant IN ARRAY tenants LOOP
        rings := holdfast.refresh_tenant(tenant, now, more) OR rings;
    END LOOP;
    INSERT INTO holdfast.deltas (mark) VALUES (seen);
    RETURN rings;
END
$$;

-- Sorts groups anew after their rules have changed: one, or (NULL) all of the tenant.
CREATE FUNCTION holdfast.regrant(of_tenant text, of_group text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM holdfast.put_gate(ARRAY(
        SELECT j.seq FROM (
            SELECT DISTINCT g.group_name, g.queue FROM holdfast.ready g
            WHERE g.group_name IS NOT NULL AND g.tenant = of_tenant
                AND (of_group IS NULL OR g.group_name = of_group) AND g.gate = 0
        ) part
        CROSS JOIN LATERAL holdfast.group_gate(of_tenant, part.group_name, part.queue) rules
        JOIN holdfast.ready j ON j.group_name IS NOT NULL AND j.tenant = of_tenant
            AND j.group_name = part.group_name AND j.gate = 0 AND j.queue = part.queue
        WHERE NOT rules.open
    ), 1::smallint);
    INSERT INTO holdfast.deltas (tenant, group_name)
    SELECT DISTINCT j.tenant, j.group_name FROM holdfast.ready j
    WHERE j.group_name IS NOT NULL AND j.tenant = of_tenant
        AND (of_group IS NULL OR j.group_name = of_group);
END
$$;

-- Lets a new rate count from now: a bucket is never emptier than empty.
CREATE FUNCTION holdfast.bound_bucket(
    of_kind text, of_tenant text, of_part text, now bigint
) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE holdfast.buckets b SET full_at = least(b.full_at, now + s.burst * s.price_us)
    FROM holdfast.scopes s
    WHERE b.kind = of_kind AND b.tenant = of_tenant AND b.part = of_part
        AND s.kind = of_kind AND s.tenant = of_tenant AND s.part = of_part
        AND s.price_us IS NOT NULL
$$;

-- The same for all groups of a tenant, after the rules that a queue has for groups have changed.
CREATE FUNCTION holdfast.bound_groups(of_tenant text, of_queue text, now bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE holdfast.buckets b SET full_at = least(b.full_at, now + g.burst * g.price_us)
    FROM (
        SELECT o.part, rules.burst, rules.price_us FROM holdfast.buckets o
        CROSS JOIN LATERAL holdfast.group_gate(of_tenant, o.part, of_queue) rules
        WHERE o.kind = 'group' AND o.tenant = of_tenant
    ) g
    WHERE b.kind = 'group' AND b.tenant = of_tenant AND b.part = g.part AND g.price_us IS NOT NULL
$$;
