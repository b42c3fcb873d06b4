-- Which jobs of a line a claim takes.

-- Locks the first jobs of those of these lines that `gave` has no number for yet, and fills it in.
-- They are asked for `number` jobs in all. `picked_tids`: where the rows of the jobs are; a locked
-- row stays there.
CREATE OR REPLACE FUNCTION holdfast.select_jobs(
    tenants text[], queues text[], asks bigint[], INOUT gave bigint[], ranks bigint[],
    lows bigint[], number bigint, excluded text[], now bigint, OUT picked bigint[],
    OUT picked_tids tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    places integer[];
BEGIN
    FOR pass IN 1..2 LOOP
        SELECT array_agg(first.seq), array_agg(line.place::integer), array_agg(first.tid)
        INTO picked, places, picked_tids
        FROM unnest(tenants, queues, asks, gave, ranks, lows) WITH ORDINALITY
            AS line(tenant, queue, ask, gave, low_rank, low_seq, place)
        CROSS JOIN LATERAL (
            SELECT j.seq, j.ctid AS tid FROM holdfast.jobs j
            WHERE j.gate = 0 AND j.late = 0 AND j.queue = line.queue AND j.tenant = line.tenant
                AND j.state = 'enqueued' AND (j.expires_at IS NULL OR j.expires_at > now)
                AND (j.group_name IS NULL OR NOT j.group_name = ANY (excluded))
                AND (-j.priority, j.seq) >= (line.low_rank, line.low_seq)
            ORDER BY -j.priority, j.seq LIMIT line.ask FOR UPDATE SKIP LOCKED
        ) first
        WHERE line.ask > 0 AND line.gave IS NULL;
        EXIT WHEN cardinality(picked) >= number;
        -- Fewer than the counts promise: read these lines again from their very beginning, so that
        -- no job is left behind. What was selected is locked by us and is selected again.
        ranks := array_fill((-9223372036854775808)::bigint, ARRAY[cardinality(ranks)]);
        lows := array_fill(0::bigint, ARRAY[cardinality(ranks)]);
    END LOOP;
    picked := coalesce(picked, '{}');
    FOR i IN 1..cardinality(gave) LOOP
        gave[i] := coalesce(gave[i], 0);
    END LOOP;
    FOR i IN 1..cardinality(picked) LOOP
        gave[places[i]] := gave[places[i]] + 1;
    END LOOP;
END
$$;

-- Locks jobs of a tenant with limits, within all of them: the room of its turn is shared among its
-- lines, and what a line cannot give is shared among the others. `full_left`: how much that has no
-- room the claim still deals with.
CREATE OR REPLACE FUNCTION holdfast.select_of_tenant(
    of_tenant text, queues text[], has bigint[], ranks bigint[], lows bigint[], room bigint,
    lines_per_claim integer, excluded text[], now bigint, INOUT running jsonb,
    INOUT full_left bigint, OUT seqs bigint[], OUT tids tid[], OUT asks bigint[],
    OUT gave bigint[], OUT more_left boolean
) LANGUAGE plpgsql AS $$
DECLARE
    shares bigint[];
    pick record;
    number bigint;
BEGIN
    seqs := '{}';
    asks := array_fill(0::bigint, ARRAY[cardinality(queues)]);
    gave := asks;
    LOOP
        shares := holdfast.share_room(has, room, lines_per_claim);
        EXIT WHEN NOT 0 < ANY (shares) OR full_left <= 0;
        FOR i IN 1..cardinality(queues) LOOP
            EXIT WHEN full_left <= 0;
            CONTINUE WHEN shares[i] = 0;
            SELECT * INTO pick FROM holdfast.select_within_limits(
                of_tenant, queues[i], shares[i], ranks[i], lows[i], excluded, now, seqs, running,
                full_left
            );
            running := pick.running;
            full_left := pick.full_left - (pick.picked = '{}')::integer;
            seqs := seqs || pick.picked;
            tids := tids || pick.tids;
            number := cardinality(pick.picked);
            room := room - number;
            asks[i] := asks[i] + shares[i];
            gave[i] := gave[i] + number;
            -- A line that gave less has nothing more for this claim.
            has[i] := CASE WHEN number < shares[i] THEN 0 ELSE has[i] - number END;
        END LOOP;
    END LOOP;
    more_left := 0 < ANY (has);
END
$$;

-- Locks the first jobs of a line whose tenant has limits, except those selected before, within the
-- room of its scopes. Jobs whose groups have no room go back behind their gate; there may be very
-- many after a tier was changed, so that the claim stops at some time.
CREATE OR REPLACE FUNCTION holdfast.select_within_limits(
    of_tenant text, of_queue text, wanted bigint, low_rank bigint, low_seq bigint,
    excluded text[], now bigint, before bigint[], INOUT running jsonb,
    INOUT full_left bigint, OUT picked bigint[], OUT tids tid[]
) LANGUAGE plpgsql AS $$
DECLARE
    allowed bigint;
    grouped boolean;
    job record;
    started record;
    back bigint[];
BEGIN
    picked := '{}';
    SELECT least(
        wanted,
        (SELECT r.room FROM holdfast.scope_room('tenant', of_tenant, '', now, running) r),
        (SELECT r.room FROM holdfast.scope_room('queue', of_tenant, of_queue, now, running) r)
    ), holdfast.limits_groups(of_tenant) INTO allowed, grouped;
    WHILE cardinality(picked) < allowed LOOP
        back := '{}';
        FOR job IN
            SELECT j.seq, j.group_name, j.ctid AS tid FROM holdfast.jobs j
            WHERE j.gate = 0 AND j.late = 0 AND j.queue = of_queue AND j.tenant = of_tenant
                AND j.state = 'enqueued' AND (j.expires_at IS NULL OR j.expires_at > now)
                AND (j.group_name IS NULL OR NOT j.group_name = ANY (excluded))
                AND NOT j.seq = ANY (before || picked)
                AND (-j.priority, j.seq) >= (low_rank, low_seq)
            ORDER BY -j.priority, j.seq LIMIT allowed - cardinality(picked) FOR UPDATE SKIP LOCKED
        LOOP
            IF NOT grouped OR job.group_name IS NULL THEN
                picked := picked || job.seq;
                tids := tids || job.tid;
                CONTINUE;
            END IF;
            SELECT * INTO started FROM holdfast.start_in_group(
                of_tenant, of_queue, job.group_name, now, running
            );
            running := started.running;
            IF started.done THEN
                picked := picked || job.seq;
                tids := tids || job.tid;
            ELSE
                back := back || job.seq;
            END IF;
        END LOOP;
        PERFORM holdfast.set_gate(back, 1::smallint);
        full_left := full_left - cardinality(back);
        EXIT WHEN full_left <= 0;
        CONTINUE WHEN back <> '{}' OR cardinality(picked) = allowed;
        -- Fewer than the counts promise: read the line again from its very beginning.
        EXIT WHEN low_rank = -9223372036854775808;
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
    running := holdfast.start_in_line(of_tenant, of_queue, cardinality(picked), now, running);
END
$$;

-- Starts so many jobs of a line: counts them as running in its tenant and its queue, and takes
-- their tokens.
CREATE OR REPLACE FUNCTION holdfast.start_in_line(
    of_tenant text, of_queue text, number bigint, now bigint, INOUT running jsonb
) LANGUAGE plpgsql AS $$
BEGIN
    IF number = 0 THEN
        RETURN;
    END IF;
    running := holdfast.add_running(
        running, holdfast.scope_key('tenant', of_tenant, ''), number
    );
    running := holdfast.add_running(
        running, holdfast.scope_key('queue', of_tenant, of_queue), number
    );
    PERFORM holdfast.take_tokens(
        s.kind, of_tenant, s.part, holdfast.limits_of(s.kind, of_tenant, s.part), number, now
    ) FROM (VALUES ('tenant', ''), ('queue', of_queue)) s(kind, part);
END
$$;

-- Starts one job of a group, if the group has room for it: counts it as running and takes its
-- token.
CREATE OR REPLACE FUNCTION holdfast.start_in_group(
    of_tenant text, of_queue text, of_group text, now bigint, INOUT running jsonb, OUT done boolean
) LANGUAGE plpgsql AS $$
DECLARE
    its record;
BEGIN
    SELECT * INTO its FROM holdfast.group_limits(of_tenant, of_group, of_queue);
    done := its.open;
    IF NOT done THEN
        SELECT r.room > 0 INTO done FROM holdfast.limit_room(
            'group', of_tenant, of_group, its.limits, now, running
        ) r;
    END IF;
    IF done THEN
        PERFORM holdfast.take_tokens('group', of_tenant, of_group, its.limits, 1, now);
        running := holdfast.add_running(
            running, holdfast.scope_key('group', of_tenant, of_group), 1
        );
    END IF;
END
$$;
