-- What is set aside where a limit of the platform leaves no room, and let in again when there is
-- some. All of it runs under the lock of claims, except what only reads.

-- Opens or closes a line, and counts it as one of its tenant's. A closed one is set aside: with
-- `turn` the tenant keeps its place among all tenants, whichever lines it has left.
CREATE OR REPLACE FUNCTION holdfast.set_line_open(
    of_tenant text, of_queue text, is_open boolean, turn bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    was record;
    known boolean;
    shift bigint := 0;
BEGIN
    SELECT c.open, c.enqueued > c.blocked AS has_jobs INTO was FROM holdfast.counts c
    WHERE c.kind = 'queue' AND c.tenant = of_tenant AND c.part = of_queue;
    known := FOUND;
    IF is_open <> coalesce(was.open, true) THEN
        INSERT INTO holdfast.counts AS c (kind, tenant, part, open, turn, floor_rank, floor_seq)
        VALUES ('queue', of_tenant, of_queue, is_open, nextval('holdfast.cursors'),
            9223372036854775807, 9223372036854775807)
        ON CONFLICT (kind, tenant, part)
        DO UPDATE SET open = excluded.open, turn = excluded.turn, parked = false;
        IF coalesce(was.has_jobs, false) THEN
            shift := CASE WHEN is_open THEN 1 ELSE -1 END;
        END IF;
    ELSE
        known := true;
    END IF;
    INSERT INTO holdfast.counts AS c (kind, tenant, part, lines, queues, turn, kept)
    VALUES ('tenant', of_tenant, '', shift, (NOT known)::integer, set_line_open.turn, true)
    ON CONFLICT (kind, tenant, part) DO UPDATE SET lines = c.lines + shift,
        queues = c.queues + excluded.queues, kept = true,
        turn = CASE WHEN c.lines > 0 OR c.kept THEN c.turn
            ELSE greatest(c.turn, excluded.turn) END;
END
$$;

-- Sets aside the line that a claim met, and others of its queue; returns how many.
CREATE OR REPLACE FUNCTION holdfast.set_lines_aside(
    of_tenant text, of_queue text, turn bigint, most bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    others text[];
BEGIN
    PERFORM holdfast.set_line_open(of_tenant, of_queue, false, turn);
    INSERT INTO holdfast.aside VALUES ('queue', of_queue, of_queue, of_tenant, turn)
    ON CONFLICT DO NOTHING;
    -- Or else each of the next claims would meet them, tenant by tenant.
    others := ARRAY(
        SELECT c.tenant FROM holdfast.counts c
        WHERE c.kind = 'queue' AND c.open AND c.enqueued > c.blocked AND NOT c.parked
            AND c.part = of_queue
        ORDER BY c.tenant_turn LIMIT most - 1
    );
    UPDATE holdfast.counts c SET open = false
    WHERE c.kind = 'queue' AND c.tenant = ANY (others) AND c.part = of_queue;
    UPDATE holdfast.counts c SET lines = c.lines - 1, kept = true
    WHERE c.kind = 'tenant' AND c.tenant = ANY (others) AND c.part = '';
    INSERT INTO holdfast.aside
    SELECT 'queue', of_queue, of_queue, c.tenant, c.turn FROM holdfast.counts c
    WHERE c.kind = 'tenant' AND c.tenant = ANY (others) AND c.part = ''
    ON CONFLICT DO NOTHING;
    RETURN 1 + cardinality(others);
END
$$;

-- Sets aside jobs of a tenant whose types have no room, which the caller has locked, by where their
-- rows are. Others of their groups may go first.
CREATE OR REPLACE FUNCTION holdfast.set_jobs_aside(
    of_tenant text, tids tid[], turn bigint, now bigint, running jsonb
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    groups text[];
    name text;
BEGIN
    IF tids = '{}' THEN
        RETURN;
    END IF;
    PERFORM holdfast.announce();
    WITH moved AS (
        UPDATE holdfast.jobs j SET gate = 3
        WHERE j.ctid = ANY (tids)
        RETURNING j.queue, j.group_name, j.type
    ), noted AS (
        INSERT INTO holdfast.aside
        SELECT DISTINCT 'type', m.type, m.queue, of_tenant, set_jobs_aside.turn FROM moved m
        ON CONFLICT DO NOTHING
    ), counted AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked)
        SELECT of_tenant, m.queue, m.group_name, count(*) FROM moved m
        GROUP BY m.queue, m.group_name
    )
    SELECT array_agg(DISTINCT m.group_name) FILTER (WHERE m.group_name IS NOT NULL) INTO groups
    FROM moved m;
    INSERT INTO holdfast.counts AS c (kind, tenant, part, turn, kept)
    VALUES ('tenant', of_tenant, '', set_jobs_aside.turn, true)
    ON CONFLICT (kind, tenant, part) DO UPDATE SET kept = true,
        turn = CASE WHEN c.lines > 0 THEN c.turn ELSE greatest(c.turn, excluded.turn) END
    WHERE NOT c.kept;
    FOREACH name IN ARRAY coalesce(groups, '{}') LOOP
        PERFORM holdfast.admit_group(of_tenant, name, now, running);
    END LOOP;
END
$$;

-- The queues and types at whose limits something waits, each in these queues.
CREATE OR REPLACE FUNCTION holdfast.aside_places(
    in_queues text[], OUT kind text, OUT part text, OUT queue text
) RETURNS SETOF record LANGUAGE plpgsql STABLE AS $$
BEGIN
    kind := '';
    part := '';
    queue := '';
    LOOP
        -- Place by place, however many tenants wait at each.
        SELECT a.kind, a.part, a.queue INTO kind, part, queue FROM holdfast.aside a
        WHERE (a.kind, a.part, a.queue)
            > (aside_places.kind, aside_places.part, aside_places.queue)
        ORDER BY a.kind, a.part, a.queue LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF in_queues IS NULL OR queue = ANY (in_queues) THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Whether a job of another type is aside that comes before this one in its line and has room.
CREATE OR REPLACE FUNCTION holdfast.waits_before(
    of_queue text, of_type text, of_rank bigint, of_seq bigint, state holdfast.platform_claim
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.aside a
        CROSS JOIN LATERAL holdfast.platform_room('type', a.part, state.now, state.running) r
        WHERE a.tenant = state.tenant AND a.kind = 'type' AND a.queue = of_queue
            AND a.part <> of_type AND coalesce(r.room, 1) > 0 AND EXISTS (
                SELECT FROM holdfast.jobs j
                WHERE j.gate = 3 AND j.late = 0 AND j.type = a.part AND j.queue = of_queue
                    AND j.tenant = state.tenant AND (-j.priority, j.seq) < (of_rank, of_seq)
            )
    );
END
$$;

-- Lets in what waits at limits of the platform that have room by now: as many lines, or jobs, as a
-- claim of so many can take. Returns the tenants.
CREATE OR REPLACE FUNCTION holdfast.let_in(
    in_tenants text[], in_queues text[], room bigint, INOUT state holdfast.platform_claim,
    OUT names text[]
) LANGUAGE plpgsql AS $$
DECLARE
    changes holdfast.line_change[];
    place record;
    has record;
    free bigint;
    moved bigint;
    first text[];
BEGIN
    names := '{}';
    FOR place IN SELECT * FROM holdfast.aside_places(in_queues) LOOP
        SELECT * INTO has FROM holdfast.platform_room(
            place.kind, place.part, state.now, state.running
        );
        IF has.room = 0 THEN
            state.wakes := holdfast.schedule_reopen(place.kind, '', place.part, has.opens_at)
                OR state.wakes;
        END IF;
        free := least(room, has.room, state.lets);
        CONTINUE WHEN free <= 0;
        changes := coalesce(changes, holdfast.line_changes());
        first := holdfast.first_aside(
            place.kind, place.part, place.queue, free, in_tenants, changes
        );
        CONTINUE WHEN first = '{}';
        IF place.kind = 'queue' THEN
            PERFORM holdfast.let_lines_in(first, place.queue, state.now, state.running);
            moved := cardinality(first);
        ELSE
            -- An even share for each.
            free := greatest(1, free / cardinality(first), free / state.lines_per_claim);
            moved := holdfast.let_jobs_in(
                first, place.part, place.queue, free, state.now, state.running
            );
        END IF;
        CONTINUE WHEN moved = 0;
        state.lets := state.lets - moved;
        names := names || first;
    END LOOP;
    IF names <> '{}' THEN
        SELECT coalesce(array_agg(d.tenant), '{}'), coalesce(array_agg(d.queue), '{}')
        INTO state.dry_tenants, state.dry_queues
        FROM unnest(state.dry_tenants, state.dry_queues) AS d(tenant, queue)
        WHERE NOT d.tenant = ANY (names);
        PERFORM holdfast.note_platform();
    END IF;
END
$$;

-- The place of a tenant that keeps its turn.
CREATE OR REPLACE FUNCTION holdfast.turn_of(changes holdfast.line_change[], of_tenant text)
RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN greatest(
        (
            SELECT c.turn FROM holdfast.counts c
            WHERE c.kind = 'tenant' AND c.tenant = of_tenant AND c.part = ''
        ),
        (SELECT max(u.turned) FROM unnest(changes) u WHERE u.tenant = of_tenant), 0
    );
END
$$;

-- The first tenants that wait at a place, of these if any are named, by the copies of their turns.
-- A copy is never too large: those at the head are corrected until all of them are right.
CREATE OR REPLACE FUNCTION holdfast.first_aside(
    of_kind text, of_part text, of_queue text, most bigint, in_tenants text[],
    changes holdfast.line_change[]
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    wrong text[];
    found text[];
BEGIN
    IF in_tenants IS NOT NULL THEN
        RETURN ARRAY(
            SELECT a.tenant FROM (SELECT DISTINCT u.t FROM unnest(in_tenants) u(t)) n
            JOIN holdfast.aside a ON a.kind = of_kind AND a.part = of_part AND a.queue = of_queue
                AND a.tenant = n.t
            ORDER BY holdfast.turn_of(changes, a.tenant) LIMIT most
        );
    END IF;
    LOOP
        SELECT array_agg(h.tenant ORDER BY h.turn),
            array_agg(h.tenant) FILTER (WHERE h.turn <> holdfast.turn_of(changes, h.tenant))
        INTO found, wrong FROM (
            SELECT a.tenant, a.turn FROM holdfast.aside a
            WHERE a.kind = of_kind AND a.part = of_part AND a.queue = of_queue
            ORDER BY a.turn LIMIT most
        ) h;
        EXIT WHEN wrong IS NULL;
        UPDATE holdfast.aside a SET turn = holdfast.turn_of(changes, a.tenant)
        WHERE a.kind = of_kind AND a.part = of_part AND a.queue = of_queue
            AND a.tenant = ANY (wrong);
    END LOOP;
    RETURN coalesce(found, '{}');
END
$$;

-- Opens lines that waited at the limit of their queue, as far as their own limits allow.
CREATE OR REPLACE FUNCTION holdfast.let_lines_in(
    tenants text[], of_queue text, now bigint, running jsonb
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_tenant text;
BEGIN
    DELETE FROM holdfast.aside a WHERE a.kind = 'queue' AND a.part = of_queue
        AND a.queue = of_queue AND a.tenant = ANY (tenants);
    FOREACH of_tenant IN ARRAY tenants LOOP
        PERFORM holdfast.set_line_open(of_tenant, of_queue, r.room > 0, 0),
            holdfast.note_rest('queue', of_tenant, of_queue, r.room = 0),
            holdfast.schedule_reopen(
                'queue', of_tenant, of_queue, CASE WHEN r.room = 0 THEN r.opens_at END
            )
        FROM holdfast.scope_room('queue', of_tenant, of_queue, now, running) r;
    END LOOP;
END
$$;

-- Puts the first jobs of these tenants that waited at the limit of their type back into their
-- lines, up to so many of each, or before their groups. Returns how many jobs and waiting tenants
-- it moved: none where others have locked them.
CREATE OR REPLACE FUNCTION holdfast.let_jobs_in(
    tenants text[], of_type text, of_queue text, most bigint, now bigint, running jsonb
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    groups text[];
    number bigint;
    done bigint;
BEGIN
    PERFORM holdfast.announce();
    WITH moved AS (
        UPDATE holdfast.jobs j SET gate = CASE
            WHEN j.group_name IS NOT NULL AND holdfast.limits_groups(j.tenant) THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(
            SELECT f.ctid FROM unnest(tenants) AS u(tenant) CROSS JOIN LATERAL (
                SELECT x.ctid FROM holdfast.jobs x
                WHERE x.gate = 3 AND x.late = 0 AND x.type = of_type AND x.queue = of_queue
                    AND x.tenant = u.tenant
                ORDER BY -x.priority, x.seq LIMIT most FOR UPDATE SKIP LOCKED
            ) f
        ))
        RETURNING j.tenant, j.group_name, j.gate, j.priority, j.seq
    ), counted AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name, blocked, head_rank, head_seq)
        SELECT m.tenant, of_queue, m.group_name, -count(*) FILTER (WHERE m.gate = 0),
            min(-m.priority) FILTER (WHERE m.gate = 0), min(m.seq) FILTER (WHERE m.gate = 0)
        FROM moved m GROUP BY m.tenant, m.group_name ORDER BY min(m.seq)
    )
    SELECT count(*), array_agg(DISTINCT ARRAY[m.tenant, m.group_name]) FILTER (WHERE m.gate = 1)
    INTO number, groups FROM moved m;
    FOR i IN 1..coalesce(array_length(groups, 1), 0) LOOP
        PERFORM holdfast.admit_group(groups[i][1], groups[i][2], now, running);
    END LOOP;
    DELETE FROM holdfast.aside a
    WHERE a.kind = 'type' AND a.part = of_type AND a.queue = of_queue AND a.tenant = ANY (tenants)
        AND NOT EXISTS (
            SELECT FROM holdfast.jobs j WHERE j.gate = 3 AND j.late = 0 AND j.type = of_type
                AND j.queue = of_queue AND j.tenant = a.tenant
        );
    GET DIAGNOSTICS done = ROW_COUNT;
    RETURN number + done;
END
$$;
