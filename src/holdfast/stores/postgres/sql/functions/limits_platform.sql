-- Limits of the platform: room of the store, of queues and of types over all tenants. All of it
-- runs under the lock of claims, except what only reads; see limits_aside.sql too.

-- By how many jobs each scope of the platform that has settings may run more than `scopes` says, by
-- deltas. Queues and types are left out where none of them has settings.
CREATE OR REPLACE FUNCTION holdfast.platform_changes() RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    more jsonb;
BEGIN
    IF NOT holdfast.platform_has_parts() THEN
        RETURN jsonb_build_object(holdfast.scope_key('platform', '', ''), (
            SELECT coalesce(sum(d.processing), 0) FROM holdfast.deltas d
            WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
                AND d.queue IS NOT NULL AND d.processing <> 0
        ));
    END IF;
    WITH changed AS (
        SELECT d.queue, d.type, sum(d.processing) AS processing FROM holdfast.deltas d
        WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
            AND d.queue IS NOT NULL AND d.processing <> 0
        GROUP BY d.queue, d.type
    ), scoped AS (
        SELECT holdfast.scope_key('platform', '', '') AS scope, processing FROM changed
        UNION ALL
        SELECT holdfast.scope_key('queue', '', queue), processing FROM changed
        WHERE EXISTS (SELECT FROM holdfast.scopes s WHERE s.kind = 'queue' AND s.tenant = '')
        UNION ALL
        SELECT holdfast.scope_key('type', '', type), processing FROM changed
        WHERE type IS NOT NULL
            AND EXISTS (SELECT FROM holdfast.scopes s WHERE s.kind = 'type' AND s.tenant = '')
    )
    SELECT coalesce(jsonb_object_agg(scope, processing), '{}') INTO more FROM (
        SELECT scope, sum(processing) AS processing FROM scoped GROUP BY scope
    ) s;
    RETURN more;
END
$$;

-- Whether any queue or type has settings over all tenants.
CREATE OR REPLACE FUNCTION holdfast.platform_has_parts() RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.scopes s WHERE s.kind IN ('queue', 'type') AND s.tenant = ''
    );
END
$$;

-- The scopes of the platform that have settings: how many jobs of each may start, and when time
-- alone may make more room. A function that PostgreSQL can inline.
CREATE OR REPLACE FUNCTION holdfast.platform_rooms(now bigint, more jsonb)
RETURNS TABLE (kind text, part text, price_us bigint, room bigint, opens_at bigint)
LANGUAGE sql STABLE AS $$
    SELECT s.kind, s.part, s.price_us, CASE WHEN s.paused THEN 0 ELSE greatest(0, least(
        1::bigint << 60, r.room, s.max_running - s.running
            - coalesce((more ->> holdfast.scope_key(s.kind, '', s.part))::bigint, 0)
    )) END, r.opens_at
    FROM holdfast.scopes s LEFT JOIN LATERAL holdfast.limit_room(
        s.kind, '', s.part,
        ROW(NULL, s.price_us, s.burst, false, false, NULL, NULL)::holdfast.limits, now, more
    ) r ON s.price_us IS NOT NULL
    WHERE s.kind IN ('platform', 'queue', 'type') AND s.tenant = ''
$$;

-- How many jobs of a scope of the platform may start, and when time alone may make more room. NULL:
-- nothing limits it.
CREATE OR REPLACE FUNCTION holdfast.platform_room(
    of_kind text, of_part text, now bigint, more jsonb, OUT room bigint, OUT opens_at bigint
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT r.room, r.opens_at INTO room, opens_at FROM holdfast.platform_rooms(now, more) r
    WHERE r.kind = of_kind AND r.part = of_part;
END
$$;

-- Notes when time alone will make room in a scope of the platform that has none now; true when
-- sleepers must be told.
CREATE OR REPLACE FUNCTION holdfast.schedule_platform(of_kind text, of_part text, now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN holdfast.schedule_reopen(of_kind, '', of_part, r.opens_at)
    FROM holdfast.platform_room(of_kind, of_part, now, '{}') r;
END
$$;

-- Begins a claim of so many jobs: how many it may take of the whole store; the queues and types
-- that may stop it before that (`tight`), whether types may, whether it must be planned by rounds
-- for these or for what it may let in, and whether queues or types have rates.
CREATE OR REPLACE FUNCTION holdfast.bound_by_platform(
    in_queues text[], now bigint, most bigint, full_left bigint
) RETURNS holdfast.platform_claim LANGUAGE plpgsql AS $$
DECLARE
    more jsonb := holdfast.platform_changes();
    whole record;
    state holdfast.platform_claim;
BEGIN
    SELECT * INTO whole FROM holdfast.platform_room('platform', '', now, more);
    state.full_left := full_left;
    state.room := least(most, whole.room);
    IF state.room = 0 THEN
        state.wakes := holdfast.schedule_reopen('platform', '', '', whole.opens_at);
        RETURN state;
    ELSIF NOT holdfast.platform_has_parts() AND NOT EXISTS (SELECT FROM holdfast.aside) THEN
        state.by_rounds := false;
        state.priced := false;
        RETURN state;
    END IF;
    SELECT coalesce(array_agg(holdfast.scope_key(r.kind, '', r.part))
            FILTER (WHERE r.room < state.room), '{}'),
        coalesce(bool_or(r.kind = 'type') FILTER (WHERE r.room < state.room), false),
        coalesce(bool_or(r.price_us IS NOT NULL), false)
    INTO state.tight, state.types_bind, state.priced
    FROM holdfast.platform_rooms(now, more) r
    WHERE r.kind = 'type'
        OR r.kind = 'queue' AND (in_queues IS NULL OR r.part = ANY (in_queues));
    SELECT state.tight <> '{}' OR count(*) > 0,
        state.types_bind OR coalesce(bool_or(p.kind = 'type'), false)
    INTO state.by_rounds, state.types_bind FROM holdfast.aside_places(in_queues) p;
    RETURN state;
END
$$;

-- How many jobs a queue or a type has room for over all tenants, and what the tenant may still take
-- of it in this round: the room is shared by weight. What cannot stop the claim is not looked up.
CREATE OR REPLACE FUNCTION holdfast.platform_share(
    of_kind text, of_part text, INOUT state holdfast.platform_claim, OUT share bigint,
    OUT room bigint
) LANGUAGE plpgsql AS $$
DECLARE
    key text := holdfast.scope_key(of_kind, '', of_part);
    has record;
BEGIN
    IF NOT key = ANY (state.tight) THEN
        room := 1::bigint << 60;
        share := room;
        RETURN;
    END IF;
    SELECT * INTO has FROM holdfast.platform_room(of_kind, of_part, state.now, state.running);
    room := has.room;
    share := room;
    IF room = 0 THEN
        state.is_full := true;
        state.wakes := holdfast.schedule_reopen(of_kind, '', of_part, has.opens_at) OR state.wakes;
        RETURN;
    END IF;
    IF state.times -> key IS NULL THEN
        state.times := state.times || jsonb_build_object(key, greatest(
            1, room / state.weights, room * state.number / (state.weights * state.lines_per_claim)
        ));
    END IF;
    IF state.shares -> key IS NULL THEN
        state.kinds := state.kinds || of_kind;
        state.parts := state.parts || of_part;
        state.shares := state.shares || jsonb_build_object(
            key, state.weight * (state.times ->> key)::bigint
        );
    END IF;
    share := greatest(0, least(room, (state.shares ->> key)::bigint
        - coalesce((state.taken ->> key)::bigint, 0)));
END
$$;

-- Counts jobs that start in a scope of the platform, and takes their tokens.
CREATE OR REPLACE FUNCTION holdfast.start_by_platform(
    of_kind text, of_part text, number bigint, INOUT state holdfast.platform_claim
) LANGUAGE plpgsql AS $$
DECLARE
    key text := holdfast.scope_key(of_kind, '', of_part);
    price bigint;
BEGIN
    IF number = 0 THEN
        RETURN;
    END IF;
    IF key = ANY (state.tight) THEN
        state.running := holdfast.add_running(state.running, key, number);
        state.taken := holdfast.add_running(coalesce(state.taken, '{}'), key, number);
    END IF;
    IF of_kind <> 'platform' AND NOT state.priced THEN
        RETURN;
    END IF;
    SELECT s.price_us INTO price FROM holdfast.scopes s
    WHERE s.kind = of_kind AND s.tenant = '' AND s.part = of_part;
    IF price IS NOT NULL THEN
        PERFORM holdfast.take_tokens(
            of_kind, '', of_part,
            ROW(NULL, price, NULL, false, false, NULL, NULL)::holdfast.limits, number, state.now
        );
        state.wakes := holdfast.schedule_platform(of_kind, of_part, state.now) OR state.wakes;
    END IF;
END
$$;

-- Takes the tokens of jobs that a claim has leased without rounds, and notes when there are more.
-- `priced`: queues or types have rates. True when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.take_platform_tokens(seqs bigint[], priced boolean, now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    own record;
    wakes boolean := false;
BEGIN
    FOR own IN
        WITH started AS (
            SELECT j.queue, j.type FROM holdfast.jobs j WHERE priced AND j.seq = ANY (seqs)
        )
        SELECT s.kind, s.part, s.price_us, n.number FROM (
            SELECT 'platform' AS kind, '' AS part, cardinality(seqs)::bigint AS number
            UNION ALL
            SELECT 'queue', queue, count(*) FROM started GROUP BY queue
            UNION ALL
            SELECT 'type', type, count(*) FROM started GROUP BY type
        ) n JOIN holdfast.scopes s ON s.kind = n.kind AND s.tenant = '' AND s.part = n.part
        WHERE s.price_us IS NOT NULL
    LOOP
        PERFORM holdfast.take_tokens(
            own.kind, '', own.part,
            ROW(NULL, own.price_us, NULL, false, false, NULL, NULL)::holdfast.limits,
            own.number, now
        );
        wakes := holdfast.schedule_platform(own.kind, own.part, now) OR wakes;
    END LOOP;
    RETURN wakes;
END
$$;

-- Counts the running jobs of the platform's scopes anew. One statement, so that jobs and deltas are
-- of one snapshot: what deltas name is added by who reads the number, whether they were written
-- before or by transactions that have not ended yet. Each leased job is named in `leases`.
CREATE OR REPLACE FUNCTION holdfast.count_platform_running() RETURNS void
LANGUAGE sql VOLATILE SET jit = off AS $$
    WITH leased AS MATERIALIZED (
        SELECT j.queue, j.type, 1::bigint AS number FROM (
            SELECT DISTINCT u.seq FROM holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS u(seq)
        ) n CROSS JOIN LATERAL (
            SELECT x.queue, x.type FROM holdfast.jobs x
            WHERE x.seq = n.seq AND x.state = 'processing' LIMIT 1
        ) j
        UNION ALL
        SELECT d.queue, d.type, -d.processing FROM holdfast.deltas d
        WHERE d.queue IS NOT NULL AND d.processing <> 0
    ), summed AS (
        SELECT 'platform' AS kind, '' AS part, sum(number) AS number FROM leased
        UNION ALL
        SELECT 'queue', queue, sum(number) FROM leased GROUP BY queue
        UNION ALL
        SELECT 'type', type, sum(number) FROM leased GROUP BY type
    )
    UPDATE holdfast.scopes s SET running = coalesce((
        SELECT x.number FROM summed x WHERE x.kind = s.kind AND x.part = s.part
    ), 0)
    WHERE s.tenant = ''
$$;

-- Notes whether limits of the platform concern claims: while one of its scopes has settings, or
-- something is still set aside.
CREATE OR REPLACE FUNCTION holdfast.note_platform() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    concerns boolean := EXISTS (SELECT FROM holdfast.aside) OR EXISTS (
        SELECT FROM holdfast.scopes s
        WHERE s.kind IN ('platform', 'queue', 'type') AND s.tenant = ''
    );
BEGIN
    UPDATE holdfast.store_state h SET platform = concerns WHERE h.platform <> concerns;
END
$$;

-- True when somebody may wait for room that a job which ends makes in a scope of the platform:
-- where something is aside, or while the whole store is not 10,000 jobs below its limit. Claims
-- that other transactions have not committed yet may have started some of these.
CREATE OR REPLACE FUNCTION holdfast.platform_may_wait() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT platform FROM holdfast.store_state) AND (
        EXISTS (SELECT FROM holdfast.aside) OR EXISTS (
            SELECT FROM holdfast.scopes s
            WHERE s.kind = 'platform' AND s.tenant = '' AND s.part = ''
                AND (s.max_running - s.running < 10000 OR s.max_running - s.running < 10000 + (
                    SELECT coalesce(sum(d.processing), 0) FROM holdfast.deltas d
                    WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state)
                        AND d.queue IS NOT NULL AND d.processing <> 0
                ))
        )
    );
END
$$;

-- False when the whole store has no room, true when a claim may let in what waits at a limit of the
-- platform; else NULL: it depends on what is not set aside.
CREATE OR REPLACE FUNCTION holdfast.platform_can_claim(
    in_tenants text[], in_queues text[], now bigint
) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    more jsonb := holdfast.platform_changes();
BEGIN
    IF (SELECT r.room = 0 FROM holdfast.platform_room('platform', '', now, more) r) THEN
        RETURN false;
    ELSIF EXISTS (
        SELECT FROM holdfast.aside_places(in_queues) p
        CROSS JOIN LATERAL holdfast.platform_room(p.kind, p.part, now, more) r
        WHERE coalesce(r.room, 1) > 0 AND (in_tenants IS NULL OR EXISTS (
            SELECT FROM holdfast.aside a WHERE a.kind = p.kind AND a.part = p.part
                AND a.queue = p.queue AND a.tenant = ANY (in_tenants)
        ))
    ) THEN
        RETURN true;
    END IF;
    RETURN NULL;
END
$$;
