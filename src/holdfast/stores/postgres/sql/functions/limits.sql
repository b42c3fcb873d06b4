-- Limits, rates, pauses and slots of scopes: what may start now. All of it runs under the lock of
-- claims, except scopes_need_refresh, which only reads.

-- Opens whatever has room now and closes what has none: gates of groups, then tenants and lines.
-- Reads the scopes that new deltas name. True when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.refresh_scopes(now bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot;
    tenants text[];
    groups text[][];
    tenant text;
    more jsonb;
    wakes boolean := false;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.tenants_with_settings) THEN
        RETURN false;
    END IF;
    SELECT pg_current_snapshot(), array_agg(DISTINCT d.tenant),
        array_agg(DISTINCT ARRAY[d.tenant, d.group_name]) FILTER (WHERE d.group_name IS NOT NULL)
    INTO seen, tenants, groups
    FROM holdfast.deltas d JOIN holdfast.tenants_with_settings r ON r.tenant = d.tenant
    WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
        AND NOT pg_visible_in_snapshot(d.txid, (SELECT holdfast.last_refresh()));
    IF tenants IS NULL THEN
        RETURN false;
    END IF;
    PERFORM holdfast.announce();
    more := holdfast.running_changes();
    FOR i IN 1..coalesce(array_length(groups, 1), 0) LOOP
        wakes := holdfast.admit_group(groups[i][1], groups[i][2], now, more) OR wakes;
    END LOOP;
    FOREACH tenant IN ARRAY tenants LOOP
        wakes := holdfast.refresh_tenant(tenant, now, more) OR wakes;
    END LOOP;
    INSERT INTO holdfast.deltas (refreshed) VALUES (seen);
    RETURN wakes;
END
$$;

-- True when deltas name scopes with settings that `refresh_scopes` has not read yet.
CREATE OR REPLACE FUNCTION holdfast.scopes_need_refresh() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM holdfast.tenants_with_settings) AND EXISTS (
        SELECT FROM holdfast.deltas d JOIN holdfast.tenants_with_settings r ON r.tenant = d.tenant
        WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
            AND NOT pg_visible_in_snapshot(d.txid, (SELECT holdfast.last_refresh()))
    );
END
$$;

-- The newest snapshot in which `refresh_scopes` has read the deltas.
CREATE OR REPLACE FUNCTION holdfast.last_refresh() RETURNS pg_snapshot LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT d.refreshed FROM holdfast.deltas d
            WHERE d.id >= h.deltas_floor AND d.refreshed IS NOT NULL ORDER BY d.id DESC LIMIT 1
        ),
        h.last_refresh
    ) FROM holdfast.store_state h;
END
$$;

-- Opens and closes a tenant, and those of its lines whose queues have settings; true when sleepers
-- must be told of a new instant.
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
    wakes boolean := false;
BEGIN
    SELECT * INTO whole FROM holdfast.scope_room('tenant', of_tenant, '', now, more);
    IF whole.room = 0 THEN
        wakes := holdfast.schedule_reopen('tenant', of_tenant, '', whole.opens_at);
    END IF;
    is_open := whole.room > 0;
    SELECT c.open INTO was FROM holdfast.counts c
    WHERE c.kind = 'tenant' AND c.tenant = of_tenant AND c.part = '';
    IF is_open <> coalesce(was, true) THEN
        INSERT INTO holdfast.counts (kind, tenant, part, open, turn)
        VALUES ('tenant', of_tenant, '', is_open, nextval('holdfast.cursors'))
        ON CONFLICT (kind, tenant, part)
        DO UPDATE SET open = excluded.open, turn = excluded.turn, credit = 0;
        UPDATE holdfast.counts c SET parked = false
        WHERE is_open AND c.kind = 'queue' AND c.parked AND c.tenant = of_tenant;
    END IF;
    FOR line IN
        SELECT s.part AS queue, coalesce(c.open, true) AS open, c.kind IS NULL AS is_new,
            coalesce(c.enqueued > c.blocked, false) AS has_jobs
        FROM holdfast.scopes s LEFT JOIN holdfast.counts c
            ON c.kind = 'queue' AND c.tenant = s.tenant AND c.part = s.part
        WHERE s.kind = 'queue' AND s.tenant = of_tenant AND (c.kind IS NOT NULL OR EXISTS (
            SELECT FROM holdfast.deltas d
            WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
                AND d.tenant = of_tenant AND d.queue = s.part
        ))
        UNION
        SELECT c.part, c.open, false, c.enqueued > c.blocked FROM holdfast.counts c
        WHERE c.kind = 'queue' AND NOT c.open AND c.tenant = of_tenant
    LOOP
        SELECT * INTO its FROM holdfast.scope_room('queue', of_tenant, line.queue, now, more);
        IF its.room = 0 THEN
            wakes := holdfast.schedule_reopen('queue', of_tenant, line.queue, its.opens_at)
                OR wakes;
        END IF;
        is_open := its.room > 0 AND NOT EXISTS (
            SELECT FROM holdfast.aside a WHERE a.kind = 'queue' AND a.part = line.queue
                AND a.queue = line.queue AND a.tenant = of_tenant
        );
        IF is_open <> line.open THEN
            INSERT INTO holdfast.counts (kind, tenant, part, open, turn, floor_rank, floor_seq)
            VALUES ('queue', of_tenant, line.queue, is_open, nextval('holdfast.cursors'),
                9223372036854775807, 9223372036854775807)
            ON CONFLICT (kind, tenant, part)
            DO UPDATE SET open = excluded.open, turn = excluded.turn;
            shift := shift
                + CASE WHEN NOT line.has_jobs THEN 0 WHEN is_open THEN 1 ELSE -1 END;
            new := new + line.is_new::integer;
        END IF;
    END LOOP;
    IF shift <> 0 OR new <> 0 THEN
        INSERT INTO holdfast.counts AS c (kind, tenant, part, lines, queues, turn)
        VALUES ('tenant', of_tenant, '', shift, new, nextval('holdfast.cursors'))
        ON CONFLICT (kind, tenant, part) DO UPDATE SET lines = c.lines + shift,
            queues = c.queues + new,
            turn = CASE WHEN c.lines = 0 AND shift > 0 THEN excluded.turn ELSE c.turn END;
    END IF;
    RETURN wakes;
END
$$;

-- How many jobs of a tenant or a queue may start, and when time alone may make more room.
CREATE OR REPLACE FUNCTION holdfast.scope_room(
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
    SELECT r.room, r.opens_at INTO room, opens_at FROM holdfast.limit_room(
        of_kind, of_tenant, of_part, own.max_running, own.price_us, own.burst, own.paused,
        own.slots_count, now, more
    ) r;
END
$$;

-- How many jobs of a scope may start under these limits, and when time alone may make more room.
CREATE OR REPLACE FUNCTION holdfast.limit_room(
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

-- Takes the rate tokens of jobs that start.
CREATE OR REPLACE FUNCTION holdfast.take_tokens(
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

-- Notes when time alone will make room in a scope; true when sleepers must be told.
CREATE OR REPLACE FUNCTION holdfast.schedule_reopen(
    of_kind text, of_tenant text, of_part text, opens_at bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF opens_at IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.reopen_times AS r VALUES (of_kind, of_tenant, of_part, opens_at)
    ON CONFLICT (kind, tenant, part) DO UPDATE SET at = excluded.at WHERE r.at > excluded.at;
    RETURN FOUND;
END
$$;

-- The name of a scope in the JSON that `running_changes` returns. A function that PostgreSQL can
-- inline: without the cast it could not.
CREATE OR REPLACE FUNCTION holdfast.scope_key(kind text, tenant text, part text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT kind || '/' || length(tenant)::text || ':' || tenant || '/' || part
$$;

-- By how many jobs each scope of a tenant with settings runs more than its row of `counts` says.
CREATE OR REPLACE FUNCTION holdfast.running_changes() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    more jsonb;
BEGIN
    WITH changed AS (
        SELECT d.tenant, d.queue, d.group_name, sum(d.processing) AS processing
        FROM holdfast.deltas d JOIN holdfast.tenants_with_settings r ON r.tenant = d.tenant
        WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state) AND d.processing <> 0
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

-- Adds started jobs of a scope to what `running_changes` returned.
CREATE OR REPLACE FUNCTION holdfast.add_running(more jsonb, scope text, number bigint) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT more || jsonb_build_object(scope, coalesce((more ->> scope)::bigint, 0) + number)
$$;

-- Lets a changed rate count from now: a bucket is never emptier than empty.
CREATE OR REPLACE FUNCTION holdfast.cap_bucket(
    of_kind text, of_tenant text, of_part text, now bigint
) RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE holdfast.buckets b SET full_at = least(b.full_at, now + s.burst * s.price_us)
    FROM holdfast.scopes s
    WHERE b.kind = of_kind AND b.tenant = of_tenant AND b.part = of_part
        AND s.kind = of_kind AND s.tenant = of_tenant AND s.part = of_part
        AND s.price_us IS NOT NULL
$$;
