-- Claim while limits of the platform concern it. Where one of them may stop it before it is full,
-- the rounds are planned tenant by tenant and line by line, since how much a tenant may take is
-- known only when those before it have taken.

-- Selects the jobs of one round and locks them, as `plan_claim` does. `state` goes from round to
-- round.
CREATE OR REPLACE FUNCTION holdfast.plan_by_platform(
    in_tenants text[], in_queues text[], room bigint, excluded text[], lines_per_claim integer,
    now bigint, aside_most integer, INOUT state holdfast.platform_claim, OUT dry_tenants text[],
    OUT dry_queues text[], OUT tenants text[], OUT queues text[], OUT credits bigint[],
    OUT seqs bigint[], OUT tids tid[], OUT more_left boolean, OUT full_left bigint
) LANGUAGE plpgsql AS $$
DECLARE
    turns record;
    lines record;
    pick record;
    before bigint;
    first integer;
    last integer := 0;
BEGIN
    IF state.dry_tenants IS NULL THEN
        state.dry_tenants := '{}';
        state.dry_queues := '{}';
        state.asides := aside_most;
        state.lets := aside_most + room;
        state.wakes := false;
        state.now := now;
        state.excluded := excluded;
        state.lines_per_claim := lines_per_claim;
        state.breadth := 1;
    END IF;
    before := state.asides + state.lets - cardinality(state.dry_tenants);
    SELECT * INTO turns FROM holdfast.platform_turns(in_tenants, in_queues, room, state);
    state := turns.state;
    full_left := state.full_left;
    IF turns.names IS NULL THEN
        RETURN;
    END IF;
    SELECT * INTO lines FROM holdfast.lines_of_tenants(
        turns.changes, turns.names, turns.mosts, in_queues, state.dry_tenants, state.dry_queues
    );
    room := turns.room;
    tenants := '{}';
    queues := '{}';
    credits := '{}';
    seqs := '{}';
    tids := '{}';
    FOR who IN 1..cardinality(turns.names) LOOP
        EXIT WHEN room = 0 OR state.full_left <= 0;
        first := last + 1;
        WHILE lines.owners[last + 1] = who LOOP
            last := last + 1;
        END LOOP;
        CONTINUE WHEN last < first;
        SELECT * INTO pick FROM holdfast.take_platform_turn(
            turns.names[who], turns.turns[who], turns.weights[who], turns.allowed[who],
            turns.limited[who], room, lines.queues[first:last], lines.has[first:last],
            lines.low_ranks[first:last], lines.low_seqs[first:last], state
        );
        state := pick.state;
        room := room - cardinality(pick.seqs);
        seqs := seqs || pick.seqs;
        tids := tids || pick.tids;
        tenants := tenants || array_fill(turns.names[who], ARRAY[cardinality(pick.visited)]);
        queues := queues || pick.visited;
        credits := credits || pick.credits;
    END LOOP;
    state := holdfast.start_by_platform('platform', '', cardinality(seqs), state);
    full_left := state.full_left;
    dry_tenants := '{}';
    dry_queues := '{}';
    -- A round that only set something aside or let it in, or only met lines without jobs, has made
    -- progress: what it let in may be of an excluded group. The next one looks at more tenants.
    state.breadth := CASE WHEN seqs = '{}' THEN least(2 * state.breadth, 256) ELSE 1 END;
    more_left := state.asides > 0 AND (seqs <> '{}'
        OR before > state.asides + state.lets - cardinality(state.dry_tenants));
END
$$;

-- Begins a round: lets in what waits where there is room, and finds the tenants whose turn it is,
-- as `claimable_tenants` does. Without room in the whole store there are none.
CREATE OR REPLACE FUNCTION holdfast.platform_turns(
    in_tenants text[], in_queues text[], INOUT room bigint, INOUT state holdfast.platform_claim,
    OUT changes holdfast.line_change[], OUT names text[], OUT turns bigint[], OUT allowed bigint[],
    OUT weights bigint[], OUT limited boolean[], OUT mosts bigint[]
) LANGUAGE plpgsql AS $$
DECLARE
    whole record;
    let record;
    found record;
BEGIN
    state.running := holdfast.platform_changes() || holdfast.running_changes();
    SELECT * INTO whole FROM holdfast.platform_room('platform', '', state.now, state.running);
    room := least(room, whole.room);
    IF room = 0 THEN
        state.wakes := holdfast.schedule_reopen('platform', '', '', whole.opens_at)
            OR state.wakes;
        RETURN;
    END IF;
    LOOP
        SELECT * INTO let FROM holdfast.let_in(in_tenants, in_queues, room, state);
        state := let.state;
        changes := holdfast.line_changes();
        SELECT * INTO found FROM holdfast.claimable_tenants(
            changes, in_tenants, in_queues, room, state.breadth, state.lines_per_claim,
            state.dry_tenants, state.dry_queues
        );
        EXIT WHEN found.names IS NOT NULL OR let.names = '{}';
    END LOOP;
    names := found.names;
    allowed := found.allowed;
    weights := found.weights;
    limited := found.limited;
    mosts := found.mosts;
    turns := found.places;
    state.number := cardinality(names);
    state.weights := (SELECT sum(w) FROM unnest(weights) w);
    state.times := '{}';
END
$$;

-- Takes the turn of a tenant: jobs of its lines in turn, and what its turn leaves. A tenant that a
-- limit of the platform stopped keeps the rest of its weight, until there is room.
CREATE OR REPLACE FUNCTION holdfast.take_platform_turn(
    of_tenant text, turn bigint, weight bigint, allowed bigint, limited boolean, room bigint,
    queues text[], has bigint[], ranks bigint[], lows bigint[], INOUT state holdfast.platform_claim,
    OUT visited text[], OUT credits bigint[], OUT seqs bigint[], OUT tids tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    shares bigint[];
    pick record;
    number bigint;
    stopped boolean;
BEGIN
    state.tenant := of_tenant;
    state.turn := turn;
    state.weight := weight;
    state.limited := limited;
    state.is_full := false;
    state.kinds := '{}';
    state.parts := '{}';
    state.shares := '{}';
    state.taken := '{}';
    state.picked := '{}';
    visited := '{}';
    tids := '{}';
    LOOP
        shares := holdfast.share_room(
            has, least(allowed, room) - cardinality(state.picked), state.lines_per_claim
        );
        EXIT WHEN NOT 0 < ANY (shares) OR state.full_left <= 0;
        FOR i IN 1..cardinality(queues) LOOP
            EXIT WHEN state.full_left <= 0;
            CONTINUE WHEN shares[i] = 0;
            SELECT * INTO pick FROM holdfast.take_line_by_platform(
                queues[i], shares[i], ranks[i], lows[i], state
            );
            state := pick.state;
            tids := tids || pick.tids;
            IF NOT queues[i] = ANY (visited) THEN
                visited := visited || queues[i];
            END IF;
            number := cardinality(pick.tids);
            state.full_left := state.full_left - (number = 0 AND NOT state.is_full)::integer;
            has[i] := CASE WHEN number < shares[i] THEN 0 ELSE has[i] - number END;
            IF number < shares[i] AND NOT pick.has_more THEN
                state.dry_tenants := state.dry_tenants || of_tenant;
                state.dry_queues := state.dry_queues || queues[i];
            END IF;
        END LOOP;
    END LOOP;
    seqs := state.picked;
    number := cardinality(seqs);
    stopped := state.is_full OR EXISTS (
        SELECT FROM unnest(state.kinds, state.parts) AS u(kind, part)
        CROSS JOIN LATERAL holdfast.platform_room(u.kind, u.part, state.now, state.running) r
        WHERE r.room = 0
    );
    credits := array_fill(NULL::bigint, ARRAY[cardinality(visited)]);
    credits[1] := CASE
        WHEN stopped AND number < room AND number < least(allowed, weight)
        THEN least(allowed, weight) - number
        WHEN number = room AND number < allowed THEN allowed - number ELSE 0 END;
END
$$;

-- Locks up to so many jobs of a line, within the room of all scopes. Without room in its queue over
-- all tenants the line is set aside. `has_more`: only a share of this round stopped it.
CREATE OR REPLACE FUNCTION holdfast.take_line_by_platform(
    of_queue text, wanted bigint, low_rank bigint, low_seq bigint,
    INOUT state holdfast.platform_claim, OUT tids tid[], OUT has_more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    shared record;
    pick record;
    allowed bigint;
    number bigint;
BEGIN
    tids := '{}';
    has_more := false;
    SELECT * INTO shared FROM holdfast.platform_share('queue', of_queue, state);
    state := shared.state;
    IF shared.room = 0 THEN
        -- Who met this queue first in the round may have set the line aside, with many others.
        IF state.asides > 0 AND NOT EXISTS (
            SELECT FROM holdfast.aside a WHERE a.kind = 'queue' AND a.part = of_queue
                AND a.queue = of_queue AND a.tenant = state.tenant
        ) THEN
            state.asides := state.asides
                - holdfast.set_lines_aside(state.tenant, of_queue, state.turn, state.asides);
        END IF;
        RETURN;
    END IF;
    allowed := least(wanted, shared.share);
    IF state.limited THEN
        SELECT least(allowed, t.room, q.room) INTO allowed
        FROM holdfast.scope_room('tenant', state.tenant, '', state.now, state.running) t,
            holdfast.scope_room('queue', state.tenant, of_queue, state.now, state.running) q;
    END IF;
    SELECT * INTO pick FROM holdfast.select_by_platform(
        of_queue, allowed, low_rank, low_seq, state
    );
    state := pick.state;
    tids := pick.tids;
    number := cardinality(tids);
    has_more := pick.has_more OR (number = shared.share AND number < wanted);
    IF state.limited THEN
        state.running := holdfast.start_in_line(
            state.tenant, of_queue, number, state.now, state.running
        );
    END IF;
    state := holdfast.start_by_platform('queue', of_queue, number, state);
END
$$;

-- Locks the first jobs of a line whose types have room. Jobs of types without room are set aside;
-- jobs whose groups have none go back behind their gate.
CREATE OR REPLACE FUNCTION holdfast.select_by_platform(
    of_queue text, wanted bigint, low_rank bigint, low_seq bigint,
    INOUT state holdfast.platform_claim, OUT tids tid[], OUT has_more boolean
) LANGUAGE plpgsql AS $$
DECLARE
    grouped boolean := state.limited AND holdfast.limits_groups(state.tenant);
    number bigint := wanted;
    job record;
    gate record;
    started record;
    stops boolean := false;
    asides tid[];
    back bigint[];
BEGIN
    tids := '{}';
    has_more := false;
    WHILE cardinality(tids) < wanted LOOP
        asides := '{}';
        back := '{}';
        FOR job IN
            SELECT j.seq, j.group_name, j.type, -j.priority AS rank, j.ctid AS tid
            FROM holdfast.jobs j
            WHERE j.gate = 0 AND j.late = 0 AND j.queue = of_queue AND j.tenant = state.tenant
                AND j.state = 'enqueued' AND (j.expires_at IS NULL OR j.expires_at > state.now)
                AND (j.group_name IS NULL OR NOT j.group_name = ANY (state.excluded))
                AND NOT j.seq = ANY (state.picked)
                AND (-j.priority, j.seq) >= (low_rank, low_seq)
            ORDER BY -j.priority, j.seq LIMIT number FOR UPDATE SKIP LOCKED
        LOOP
            IF state.types_bind THEN
                SELECT * INTO gate FROM holdfast.gate_of_type(
                    of_queue, job.type, job.rank, job.seq, state
                );
                state := gate.state;
                stops := gate.stops;
                has_more := gate.has_more;
                EXIT WHEN stops;
                IF gate.sets_aside THEN
                    asides := asides || job.tid;
                    -- Another job of its group may be next.
                    EXIT WHEN grouped AND job.group_name IS NOT NULL;
                    CONTINUE;
                END IF;
            END IF;
            IF grouped AND job.group_name IS NOT NULL THEN
                SELECT * INTO started FROM holdfast.start_in_group(
                    state.tenant, of_queue, job.group_name, state.now, state.running
                );
                state.running := started.running;
                IF NOT started.done THEN
                    back := back || job.seq;
                    CONTINUE;
                END IF;
            END IF;
            state.picked := state.picked || job.seq;
            tids := tids || job.tid;
            IF state.types_bind OR state.priced THEN
                state := holdfast.start_by_platform('type', job.type, 1, state);
            END IF;
            EXIT WHEN cardinality(tids) = wanted;
        END LOOP;
        IF asides <> '{}' OR back <> '{}' THEN
            PERFORM holdfast.set_jobs_aside(
                state.tenant, asides, state.turn, state.now, state.running
            );
            PERFORM holdfast.set_gate(back, 1::smallint);
            state.full_left := state.full_left - cardinality(back);
        END IF;
        EXIT WHEN stops OR state.full_left <= 0;
        -- Many that are set aside are read at once.
        number := greatest(wanted - cardinality(tids), 100);
        CONTINUE WHEN asides <> '{}' OR back <> '{}' OR cardinality(tids) = wanted;
        -- Fewer than the counts promise: read the line again from its very beginning.
        EXIT WHEN low_rank = -9223372036854775808;
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
END
$$;

-- Whether a job may start as far as its type goes. If not it goes aside, unless the tenant has only
-- used up its share of this round, or the claim has set enough aside: then its line stops at it.
-- A job behind one of its line and type that is aside goes aside too, to keep their order. Behind
-- one of another type that has room, the line stops: the next round lets that one in first.
CREATE OR REPLACE FUNCTION holdfast.gate_of_type(
    of_queue text, of_type text, of_rank bigint, of_seq bigint,
    INOUT state holdfast.platform_claim, OUT stops boolean, OUT has_more boolean,
    OUT sets_aside boolean
) LANGUAGE plpgsql AS $$
DECLARE
    shared record;
    is_behind boolean;
BEGIN
    SELECT * INTO shared FROM holdfast.platform_share('type', of_type, state);
    state := shared.state;
    is_behind := EXISTS (
        SELECT FROM holdfast.aside a WHERE a.kind = 'type' AND a.part = of_type
            AND a.queue = of_queue AND a.tenant = state.tenant
    ) AND EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.gate = 3 AND j.late = 0 AND j.type = of_type AND j.queue = of_queue
            AND j.tenant = state.tenant AND (-j.priority, j.seq) < (of_rank, of_seq)
    );
    IF holdfast.waits_before(of_queue, of_type, of_rank, of_seq, state) THEN
        stops := true;
        has_more := true;
        sets_aside := false;
        RETURN;
    END IF;
    has_more := shared.room > 0 AND NOT is_behind;
    stops := (NOT has_more OR shared.share = 0) AND (has_more OR state.asides = 0);
    sets_aside := NOT has_more AND NOT stops;
    state.asides := state.asides - sets_aside::integer;
END
$$;
