-- Limits, rates, pauses and slots of scopes: what may start now. All of it runs under the lock of
-- claims, except scopes_need_refresh, which only reads.

-- Opens whatever has room now and closes what has none: gates of groups, then tenants and lines.
-- Reads the scopes that new deltas name, up to so many; the next claims go on with the others. True
-- when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.refresh_scopes(now bigint, most integer) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot;
    keys holdfast.unchecked[];
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.tenants_with_settings)
        AND NOT (SELECT h.tiered FROM holdfast.store_state h)
    THEN
        RETURN false;
    END IF;
    SELECT pg_current_snapshot(),
        array_agg((NULL, n.tenant, n.queue, n.group_name)::holdfast.unchecked)
    INTO seen, keys FROM (
        SELECT DISTINCT c.tenant, c.queue, c.group_name FROM holdfast.new_changes() c
    ) n;
    IF keys IS NULL AND NOT EXISTS (SELECT FROM holdfast.unchecked) THEN
        RETURN false;
    END IF;
    PERFORM holdfast.announce();
    INSERT INTO holdfast.deltas (refreshed) VALUES (seen);
    IF cardinality(keys) > most THEN
        INSERT INTO holdfast.unchecked (tenant, queue, group_name)
        SELECT k.tenant, k.queue, k.group_name FROM unnest(keys[most + 1:]) k;
        keys := keys[:most];
    ELSE
        WITH gone AS (
            DELETE FROM holdfast.unchecked WHERE ctid = ANY (ARRAY(
                SELECT u.ctid FROM holdfast.unchecked u ORDER BY u.id
                LIMIT most - coalesce(cardinality(keys), 0)
            ))
            RETURNING *
        )
        SELECT keys || array_agg(g::holdfast.unchecked) INTO keys FROM gone g;
    END IF;
    RETURN holdfast.refresh_tenants(ARRAY(
        SELECT (k.tenant, array_agg(DISTINCT k.queue) FILTER (WHERE k.queue IS NOT NULL),
            array_agg(DISTINCT k.group_name) FILTER (WHERE k.group_name IS NOT NULL)
        )::holdfast.tenant_change
        FROM unnest(keys) k GROUP BY k.tenant
    ), now);
END
$$;

-- Refreshes these tenants, with those of their queues and groups that are named.
CREATE OR REPLACE FUNCTION holdfast.refresh_tenants(changes holdfast.tenant_change[], now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    more jsonb := holdfast.running_changes();
    one holdfast.tenant_change;
    part text;
    wakes boolean := false;
BEGIN
    FOREACH one IN ARRAY changes LOOP
        FOREACH part IN ARRAY coalesce(one.groups, '{}') LOOP
            wakes := holdfast.admit_group(one.tenant, part, now, more) OR wakes;
        END LOOP;
    END LOOP;
    FOREACH one IN ARRAY changes LOOP
        wakes := holdfast.refresh_tenant(one.tenant, now, more) OR wakes;
        wakes := holdfast.refresh_lines(one.tenant, one.queues, now, more) OR wakes;
    END LOOP;
    RETURN wakes;
END
$$;

-- True when deltas name scopes with settings that `refresh_scopes` has not read yet, or a change of
-- a tier may have opened some.
CREATE OR REPLACE FUNCTION holdfast.scopes_need_refresh() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        EXISTS (SELECT FROM holdfast.tenants_with_settings)
        OR (SELECT h.tiered FROM holdfast.store_state h)
    ) AND (
        EXISTS (SELECT FROM holdfast.new_changes()) OR EXISTS (SELECT FROM holdfast.looks)
        OR EXISTS (SELECT FROM holdfast.unchecked)
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

-- Opens or closes a tenant; true when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.refresh_tenant(of_tenant text, now bigint, more jsonb)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    whole record;
    was boolean;
    is_open boolean;
    wakes boolean := false;
BEGIN
    SELECT * INTO whole FROM holdfast.scope_room('tenant', of_tenant, '', now, more);
    is_open := whole.room > 0;
    IF NOT is_open THEN
        wakes := holdfast.schedule_reopen('tenant', of_tenant, '', whole.opens_at);
    END IF;
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
    IF NOT is_open OR NOT was THEN
        PERFORM holdfast.note_rest('tenant', of_tenant, '', NOT is_open);
    END IF;
    RETURN wakes;
END
$$;

-- Opens and closes the lines of a tenant whose queues have settings, and those of the named ones
-- that its tier limits or that are closed; true when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.refresh_lines(
    of_tenant text, in_queues text[], now bigint, more jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    its holdfast.tiers := holdfast.tier_of_tenant(of_tenant);
    room record;
    line record;
    is_open boolean;
    shift bigint := 0;
    new bigint := 0;
    wakes boolean := false;
BEGIN
    FOR line IN
        SELECT n.queue, coalesce(c.open, true) AS open, c.kind IS NULL AS is_new,
            coalesce(c.enqueued > c.blocked, false) AS has_jobs
        FROM (
            SELECT s.part AS queue FROM holdfast.scopes s
            WHERE s.kind = 'queue' AND s.tenant = of_tenant
            UNION
            SELECT u.queue COLLATE "C" FROM unnest(in_queues) u(queue)
        ) n
        LEFT JOIN LATERAL (
            SELECT * FROM holdfast.counts x
            WHERE x.kind = 'queue' AND x.tenant = of_tenant AND x.part = n.queue LIMIT 1
        ) c ON true
        LEFT JOIN LATERAL (
            SELECT true AS has FROM holdfast.scopes s
            WHERE s.kind = 'queue' AND s.tenant = of_tenant AND s.part = n.queue LIMIT 1
        ) own ON true
        WHERE CASE WHEN own.has THEN c.kind IS NOT NULL OR n.queue = ANY (in_queues) OR EXISTS (
            SELECT FROM holdfast.deltas d
            WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
                AND d.tenant = of_tenant AND d.queue = n.queue
        ) ELSE NOT c.open OR its.queue_max IS NOT NULL OR its.queue_price IS NOT NULL END
    LOOP
        SELECT * INTO room FROM holdfast.scope_room('queue', of_tenant, line.queue, now, more);
        IF room.room = 0 THEN
            wakes := holdfast.schedule_reopen('queue', of_tenant, line.queue, room.opens_at)
                OR wakes;
        END IF;
        is_open := room.room > 0 AND NOT EXISTS (
            SELECT FROM holdfast.aside a WHERE a.kind = 'queue' AND a.part = line.queue
                AND a.queue = line.queue AND a.tenant = of_tenant
        );
        IF room.room = 0 OR NOT line.open THEN
            PERFORM holdfast.note_rest('queue', of_tenant, line.queue, room.room = 0);
        END IF;
        CONTINUE WHEN is_open = line.open;
        INSERT INTO holdfast.counts (kind, tenant, part, open, turn, floor_rank, floor_seq)
        VALUES ('queue', of_tenant, line.queue, is_open, nextval('holdfast.cursors'),
            9223372036854775807, 9223372036854775807)
        ON CONFLICT (kind, tenant, part)
        DO UPDATE SET open = excluded.open, turn = excluded.turn;
        shift := shift + CASE WHEN NOT line.has_jobs THEN 0 WHEN is_open THEN 1 ELSE -1 END;
        new := new + line.is_new::integer;
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
BEGIN
    SELECT r.room, r.opens_at INTO room, opens_at FROM holdfast.limit_room(
        of_kind, of_tenant, of_part, holdfast.limits_of(of_kind, of_tenant, of_part), now, more
    ) r;
END
$$;

-- How many jobs of a scope may start under these limits, and when time alone may make more room.
CREATE OR REPLACE FUNCTION holdfast.limit_room(
    of_kind text, of_tenant text, of_part text, limits holdfast.limits, now bigint, more jsonb,
    OUT room bigint, OUT opens_at bigint
) LANGUAGE plpgsql AS $$
DECLARE
    running bigint;
    slots bigint := 0;
    full_at bigint;
    tokens bigint;
BEGIN
    room := 1::bigint << 60;
    IF limits.max_running IS NOT NULL THEN
        SELECT c.processing INTO running FROM holdfast.counts c
        WHERE c.kind = of_kind AND c.tenant = of_tenant AND c.part = of_part;
        running := coalesce(running, 0)
            + coalesce((more ->> holdfast.scope_key(of_kind, of_tenant, of_part))::bigint, 0);
        IF limits.slots_count THEN
            SELECT count(*), min(h.until) INTO slots, opens_at FROM holdfast.holds h
            WHERE h.kind = of_kind AND h.tenant = of_tenant AND h.part = of_part AND h.until > now;
        END IF;
        room := limits.max_running - running - slots;
    END IF;
    IF limits.price_us IS NOT NULL THEN
        full_at := holdfast.bucket_full_at(of_kind, of_tenant, of_part, limits);
        tokens := limits.burst
            - (greatest(0, full_at - now) + limits.price_us - 1) / limits.price_us;
        IF tokens <= 0 THEN
            opens_at := least(opens_at, full_at - (limits.burst - 1) * limits.price_us);
        END IF;
        room := least(room, tokens);
    END IF;
    IF limits.paused THEN
        room := 0;
    END IF;
    room := greatest(0, room);
END
$$;

-- When the bucket of a scope will be full. A tier that has changed its rate did not write the
-- buckets: one that is older than the rate is no emptier than empty when the rate began to count.
CREATE OR REPLACE FUNCTION holdfast.bucket_full_at(
    of_kind text, of_tenant text, of_part text, limits holdfast.limits
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((
        SELECT CASE WHEN b.rated < limits.rated
            THEN least(b.full_at, limits.rated_at + limits.burst * limits.price_us)
            ELSE b.full_at END
        FROM holdfast.buckets b
        WHERE b.kind = of_kind AND b.tenant = of_tenant AND b.part = of_part
    ), 0);
END
$$;

-- Takes the rate tokens of jobs that start.
CREATE OR REPLACE FUNCTION holdfast.take_tokens(
    of_kind text, of_tenant text, of_part text, limits holdfast.limits, number bigint, now bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF limits.price_us IS NOT NULL AND number > 0 THEN
        INSERT INTO holdfast.buckets AS b VALUES (
            of_kind, of_tenant, of_part, greatest(
                now, holdfast.bucket_full_at(of_kind, of_tenant, of_part, limits)
            ) + number * limits.price_us, coalesce(limits.rated, 0)
        ) ON CONFLICT (kind, tenant, part)
        DO UPDATE SET full_at = excluded.full_at, rated = greatest(b.rated, excluded.rated);
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

-- By how many jobs each scope of a tenant with limits runs more than its row of `counts` says.
CREATE OR REPLACE FUNCTION holdfast.running_changes() RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    more jsonb;
BEGIN
    WITH changed AS (
        SELECT d.tenant, d.queue, d.group_name, d.processing FROM (
            SELECT x.tenant, x.queue, x.group_name, sum(x.processing) AS processing
            FROM holdfast.deltas x
            WHERE x.id >= (SELECT deltas_floor FROM holdfast.store_state) AND x.processing <> 0
            GROUP BY x.tenant, x.queue, x.group_name
        ) d CROSS JOIN holdfast.store_state h LEFT JOIN LATERAL (
            SELECT true AS has FROM holdfast.tenants_with_settings r
            WHERE r.tenant = d.tenant LIMIT 1
        ) r ON true WHERE r.has OR h.limits_all
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
    UPDATE holdfast.buckets b SET full_at = least(b.full_at, now + s.burst * s.price_us),
        rated = nextval('holdfast.cursors')
    FROM holdfast.scopes s
    WHERE b.kind = of_kind AND b.tenant = of_tenant AND b.part = of_part
        AND s.kind = of_kind AND s.tenant = of_tenant AND s.part = of_part
        AND s.price_us IS NOT NULL
$$;
