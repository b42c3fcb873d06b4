-- Claim: the round that it repeats until it is full is planned here; the jobs are selected in
-- claim_select.sql, and whose turn it is says fairness.sql.

-- Leases up to `most` jobs. Tenants take turns by weight, and the lines of a tenant take turns
-- within its turn. Rows without a seq tell the caller about sleepers (`tell_caller`), or that the
-- claim must be made again (`fold_backlog`). `full_left`: how much without room it may still meet;
-- there is much only after a tier has lowered limits. Each round looks at twice as many tenants as
-- the one before.
CREATE OR REPLACE FUNCTION holdfast.claim(
    for_worker text, nonce text, most integer, lease_us bigint, in_tenants text[],
    in_queues text[], excluded text[], given_now bigint, probe boolean, events boolean,
    channel text, repair_most integer, repair_passes integer, lines_per_claim integer,
    repeat_us bigint, aside_most integer DEFAULT 1000
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
    room bigint := most;
    visit integer := 0;
    low record;
    planned record;
    by_platform holdfast.platform_claim;
    full_left bigint;
    looks holdfast.looking;
    leased bigint[];
    dry_tenants text[] := '{}';
    dry_queues text[] := '{}';
BEGIN
    IF probe AND NOT holdfast.claim_is_due(in_tenants, in_queues, nonce, now) THEN
        RETURN;
    END IF;
    PERFORM holdfast.lock_claims();
    now := holdfast.claim_now_us(given_now);
    leased := holdfast.leased_before(nonce, now);
    IF leased <> '{}' THEN
        RETURN QUERY SELECT * FROM holdfast.repeat_claim(nonce, leased, in_tenants, in_queues, now);
        RETURN;
    END IF;
    IF holdfast.fold_backlog() THEN
        RETURN QUERY SELECT * FROM jsonb_populate_record(NULL::holdfast.lease, '{"run_at": -1}');
        RETURN;
    END IF;
    SELECT * INTO low FROM holdfast.prepare_claim(in_tenants, most, now, events, repair_most,
        repair_passes);
    full_left := low.full_left;
    looks := low.looks;
    IF low.platform THEN
        by_platform := holdfast.bound_by_platform(in_queues, now, room, full_left);
        room := by_platform.room;
    END IF;
    FOR round IN 0..2147483647 LOOP
        EXIT WHEN room = 0;
        IF by_platform.by_rounds THEN
            SELECT * INTO planned FROM holdfast.plan_by_platform(in_tenants, in_queues, room,
                excluded, lines_per_claim, now, aside_most, by_platform);
            by_platform := planned.state;
        ELSE
            SELECT * INTO planned FROM holdfast.plan_claim(in_tenants, in_queues, room, excluded,
                lines_per_claim, 1 << least(round, 8), dry_tenants, dry_queues, now, full_left);
        END IF;
        full_left := planned.full_left;
        IF planned.tenants IS NOT NULL THEN
            RETURN QUERY SELECT * FROM holdfast.lease_jobs(
                planned.tids, visit, planned.tenants, planned.queues, planned.credits, for_worker,
                nonce, lease_us, now, events
            );
        END IF;
        leased := leased || planned.seqs;
        room := room - coalesce(cardinality(planned.seqs), 0);
        EXIT WHEN room = 0 OR full_left <= 0;
        dry_tenants := dry_tenants || planned.dry_tenants;
        dry_queues := dry_queues || planned.dry_queues;
        visit := visit + coalesce(cardinality(planned.tenants), 0);
        CONTINUE WHEN planned.more_left AND planned.tenants IS NOT NULL
            AND (planned.seqs <> '{}' OR planned.dry_tenants IS NOT NULL);
        looks := holdfast.look_again(in_tenants, now, looks);
        EXIT WHEN NOT looks.found;  -- As always where there was no tier.
    END LOOP;
    low.wakes := holdfast.finish_claim(nonce, leased, now + repeat_us, by_platform, now)
        OR low.wakes OR by_platform.wakes OR looks.wakes;
    IF low.wakes OR room = 0 AND cardinality(leased) < most THEN
        RETURN QUERY SELECT * FROM holdfast.tell_caller(low.wakes,
            room = 0 AND cardinality(leased) < most, channel, low.due,
            least(low.held, now + lease_us), now);
    END IF;
END
$$;

-- Selects the jobs of one round of a claim and locks them: which lines it visits, what each tenant
-- keeps of its turn (`credits`, at the first line of each tenant), which lines gave less than they
-- were asked for (`dry`), and whether another round may find more. `full_left`: how much without
-- room it may still meet.
CREATE OR REPLACE FUNCTION holdfast.plan_claim(
    in_tenants text[], in_queues text[], room bigint, excluded text[], lines_per_claim integer,
    breadth integer, INOUT dry_tenants text[], INOUT dry_queues text[], now bigint,
    INOUT full_left bigint, OUT tenants text[], OUT queues text[], OUT credits bigint[],
    OUT seqs bigint[], OUT tids tid[], OUT more_left boolean
) LANGUAGE plpgsql AS $$
DECLARE
    changes holdfast.line_change[] := holdfast.line_changes();
    turns record;
    pick record;
    running jsonb;
    first integer;
    last integer := 0;
    unlimited bigint := 0;
    shares bigint[];
    -- By the place of a tenant: the room that there was when its turn came.
    rooms bigint[] := '{}';
    -- By the place of a line; `asks` and `gave`: the jobs it is asked for, and those it gave.
    owners integer[];
    has bigint[];
    ranks bigint[];
    lows bigint[];
    asks bigint[] := '{}';
    gave bigint[] := '{}';
BEGIN
    seqs := '{}';
    SELECT * INTO turns FROM holdfast.claimable_tenants(
        changes, in_tenants, in_queues, room, breadth, lines_per_claim, dry_tenants, dry_queues
    );
    SELECT * INTO owners, tenants, queues, has, ranks, lows FROM holdfast.lines_of_tenants(
        changes, turns.names, turns.mosts, in_queues, dry_tenants, dry_queues
    );
    more_left := turns.cut;
    -- Unlimited lines are asked for what their counts promise, and their jobs are selected below,
    -- all in one statement. What limits allow is known only when the jobs are selected.
    FOR who IN 1..coalesce(cardinality(turns.names), 0) LOOP
        EXIT WHEN room = 0 OR full_left <= 0;
        first := last + 1;
        WHILE owners[last + 1] = who LOOP
            last := last + 1;
        END LOOP;
        rooms[who] := room;
        more_left := more_left OR last - first + 1 >= turns.mosts[who];
        IF turns.limited[who] THEN
            SELECT * INTO pick FROM holdfast.select_of_tenant(
                turns.names[who], queues[first:last], has[first:last], ranks[first:last],
                lows[first:last], least(turns.allowed[who], room), lines_per_claim, excluded, now,
                coalesce(running, holdfast.running_changes()), full_left
            );
            running := pick.running;
            full_left := pick.full_left;
            seqs := seqs || pick.seqs;
            tids := tids || pick.tids;
            shares := pick.asks;
            gave := gave || pick.gave;
            room := room - cardinality(pick.seqs);
            more_left := more_left OR pick.more_left;
        ELSE
            shares := holdfast.share_room(has[first:last],
                least(turns.allowed[who], room), lines_per_claim);
            gave := gave || array_fill(NULL::bigint, ARRAY[last - first + 1]);
            FOR i IN 1..last - first + 1 LOOP
                room := room - shares[i];
                unlimited := unlimited + shares[i];
                more_left := more_left OR has[first + i - 1] > shares[i];
            END LOOP;
        END IF;
        asks := asks || shares;
    END LOOP;
    IF unlimited > 0 THEN
        SELECT seqs || p.picked, tids || p.picked_tids, p.gave INTO seqs, tids, gave
        FROM holdfast.select_jobs(
            tenants, queues, asks, gave, ranks, lows, unlimited, excluded, now
        ) p;
    END IF;
    SELECT * INTO tenants, queues, credits, dry_tenants, dry_queues FROM holdfast.claim_visits(
        tenants, queues, owners, has, asks, gave, rooms, turns.allowed
    );
END
$$;

-- The tenants whose turn it is, in order: their places, how many jobs the turn of each allows, its
-- weight, whether it has limits, and how many of its lines to read: one more than it can take
-- from, which tells whether it has another one. `breadth`: so many times more tenants than the room
-- needs. `cut`: there may be more tenants.
CREATE OR REPLACE FUNCTION holdfast.claimable_tenants(
    changes holdfast.line_change[], in_tenants text[], in_queues text[], room bigint,
    breadth bigint, lines_per_claim integer, dry_tenants text[], dry_queues text[],
    OUT names text[], OUT places bigint[], OUT allowed bigint[], OUT weights bigint[],
    OUT limited boolean[], OUT mosts bigint[], OUT cut boolean
) LANGUAGE plpgsql AS $$
DECLARE
    -- A tenant can take an eighth of a claim on average.
    wanted bigint := greatest(room, least(room, 4 * lines_per_claim) * breadth);
    -- A quarter more tenants than fill the claim, since some have less than they may take.
    enough bigint := (room + room / 4) * breadth;
    credits bigint[];
    number bigint;
    all_weights bigint;
    share bigint;
    most bigint;
    total bigint := 0;
    last integer := 0;
BEGIN
    SELECT array_agg(n.tenant), array_agg(n.turn), array_agg(n.credit), array_agg(n.weight),
        array_agg(n.limited), count(*), sum(n.weight)
    INTO names, places, credits, weights, limited, number, all_weights FROM (
        SELECT t.tenant, t.turn, t.credit, coalesce(
                r.weight, (SELECT d.weight FROM holdfast.tiers d WHERE d.tier = ''), 1
            ) AS weight,
            r.tenant IS NOT NULL OR (SELECT limits_all FROM holdfast.store_state) AS limited
        FROM (
            SELECT c.* FROM holdfast.changed_tenants(
                changes, in_tenants, in_queues, dry_tenants, dry_queues
            ) c
            UNION ALL
            SELECT u.* FROM holdfast.unchanged_tenants(
                changes, in_tenants, in_queues, wanted
            ) u
            ORDER BY turn, tenant LIMIT wanted
        ) t
        -- Looked up one by one, whatever the planner thinks of their number.
        LEFT JOIN LATERAL (
            SELECT x.tenant, coalesce(s.weight, i.weight) AS weight
            FROM holdfast.tenants_with_settings x LEFT JOIN LATERAL (
                SELECT y.weight FROM holdfast.scopes y
                WHERE y.kind = 'tenant' AND y.tenant = x.tenant AND y.part = '' LIMIT 1
            ) s ON true LEFT JOIN LATERAL (
                SELECT y.weight FROM holdfast.tiers y WHERE y.tier = x.tier LIMIT 1
            ) i ON true
            WHERE x.tenant = t.tenant LIMIT 1
        ) r ON true
        ORDER BY t.turn, t.tenant
    ) n;
    -- A turn is worth at least an eighth of a claim, so that few lines are visited by each.
    share := greatest(
        1, room / all_weights, room * number / (all_weights * lines_per_claim)
    );
    WHILE last < number AND total < enough LOOP
        last := last + 1;
        most := CASE WHEN credits[last] > 0 THEN credits[last] ELSE weights[last] * share END;
        allowed := allowed || most;
        most := least(most, room);
        mosts := mosts || most + 1;
        total := total + most;
    END LOOP;
    cut := last < number OR number = wanted;
    names := names[:last];
    places := places[:last];
    weights := weights[:last];
    limited := limited[:last];
END
$$;

-- Shares the room of a tenant's turn among its lines, which have so many jobs each, as
-- `scope.line_share`: 4 is its LINE_JOBS.
CREATE OR REPLACE FUNCTION holdfast.share_room(has bigint[], room bigint, lines_per_claim integer)
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    shares bigint[] := array_fill(0::bigint, ARRAY[cardinality(has)]);
    lines integer;
    share bigint;
    part bigint;
BEGIN
    LOOP
        lines := 0;
        FOR i IN 1..cardinality(has) LOOP
            lines := lines + (has[i] > shares[i])::integer;
        END LOOP;
        EXIT WHEN room = 0 OR lines = 0;
        share := greatest(1, room / lines, room / lines_per_claim, least((room + 1) / 2, 4));
        FOR i IN 1..cardinality(has) LOOP
            part := least(share, room, has[i] - shares[i]);
            CONTINUE WHEN part <= 0;
            shares[i] := shares[i] + part;
            room := room - part;
        END LOOP;
    END LOOP;
    RETURN shares;
END
$$;

-- The lines that a round of a claim has asked. The first line of each tenant has its credit: what
-- is left of a turn that is not over, or 0 when it has ended. A turn is not over when a full claim
-- cut it short, or when a line gave less than its count promised and another line has more: the
-- next round goes on with it, so that one line of excluded jobs does not cost a tenant its turn.
CREATE OR REPLACE FUNCTION holdfast.claim_visits(
    of_tenants text[], of_queues text[], owners integer[], has bigint[], asks bigint[],
    gave bigint[], rooms bigint[], allowed bigint[], OUT tenants text[], OUT queues text[],
    OUT credits bigint[], OUT dry_tenants text[], OUT dry_queues text[]
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    owner integer := 0;
    last integer;
    total bigint;
    dry boolean;
    more boolean;
    credit bigint;
BEGIN
    -- The lines come in the order of their owners.
    FOR i IN 1..coalesce(cardinality(asks), 0) LOOP
        IF owners[i] <> owner THEN
            owner := owners[i];
            last := i;
            total := 0;
            dry := false;
            more := false;
            WHILE owners[last] = owner LOOP
                total := total + coalesce(gave[last], 0);
                dry := dry OR coalesce(gave[last] < asks[last], false);
                more := more
                    OR coalesce(gave[last], 0) >= asks[last] AND has[last] > asks[last];
                last := last + 1;
            END LOOP;
            credit := CASE
                WHEN total < allowed[owner] AND (total = rooms[owner] OR dry AND more)
                THEN allowed[owner] - total ELSE 0 END;
        END IF;
        CONTINUE WHEN asks[i] = 0;
        tenants := tenants || of_tenants[i];
        queues := queues || of_queues[i];
        credits := credits || credit;
        credit := NULL;
        IF gave[i] < asks[i] THEN
            dry_tenants := dry_tenants || of_tenants[i];
            dry_queues := dry_queues || of_queues[i];
        END IF;
    END LOOP;
END
$$;

-- Leases the jobs whose rows are at `tids`, and counts and records it. Every line that was asked
-- has had its turn. A credit of 0 ends the turn of the line's tenant; another one is what is left.
CREATE OR REPLACE FUNCTION holdfast.lease_jobs(
    tids tid[], visit integer, tenants text[], queues text[], credits bigint[], for_worker text,
    nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
BEGIN
    PERFORM holdfast.announce();
    -- By the array, never by a join with it: a plan made while the table was empty may read an
    -- index from end to end, dead entries included.
    RETURN QUERY
    WITH lines AS MATERIALIZED (
        SELECT u.tenant, u.queue, u.credit, u.n::integer AS n
        FROM unnest(tenants, queues, credits) WITH ORDINALITY AS u(tenant, queue, credit, n)
    ), taken AS (
        UPDATE holdfast.jobs j SET state = 'processing', attempt = j.attempt + 1,
            fence = j.fence + 1, token = nonce || '.' || j.seq, lease_until = now + lease_us,
            worker = for_worker, updated_at = now, progress = NULL, awaits = NULL
        WHERE j.ctid = ANY (tids)
        RETURNING j.tenant, j.id, j.queue, j.type, j.codec, j.version, j.payload, j.rules,
            j.priority, j.key, j.group_name, j.tags, j.origin, j.seq, j.attempt, j.fence, j.lapses,
            j.misses, j.created_at, j.updated_at, j.run_at, j.expires_at, j.lease_until, j.reason,
            j.error, j.journal, j.parents, j.attempt < j.max_attempts AS again
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT now + lease_us, NOT t.again, array_agg(t.seq) FROM taken t GROUP BY t.again
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'leased', t.tenant, t.id, t.queue, t.type,
            t.attempt, t.fence, now + lease_us, for_worker
        FROM (
            SELECT x.* FROM taken x JOIN lines l ON l.tenant = x.tenant AND l.queue = x.queue
            ORDER BY l.n, x.priority DESC, x.seq
        ) t WHERE events
    ), summed AS (
        SELECT t.tenant, t.queue, t.group_name, t.type, count(*)::integer AS number,
            row_number() OVER (PARTITION BY t.tenant, t.queue ORDER BY t.group_name) AS place
        FROM taken t GROUP BY t.tenant, t.queue, t.group_name, t.type
    ), counted AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, type, enqueued, processing, served, turned, credit,
            leases_until
        )
        SELECT l.tenant, l.queue, s.group_name, s.type, -coalesce(s.number, 0),
            coalesce(s.number, 0), coalesce(s.place, 1) = 1,
            coalesce(s.place, 1) = 1 AND coalesce(l.credit = 0, false),
            CASE WHEN coalesce(s.place, 1) = 1 THEN l.credit END, now + lease_us
        FROM lines l LEFT JOIN summed s ON s.tenant = l.tenant AND s.queue = l.queue
        ORDER BY l.n, s.place
    )
    SELECT visit + l.n, t.tenant, t.id, t.queue, t.type, t.codec, t.version, t.payload, t.rules,
        t.priority, t.key, t.group_name, t.tags, t.origin, t.seq, t.attempt, t.fence, t.lapses,
        t.misses, t.created_at, t.updated_at, t.run_at, t.expires_at, t.lease_until, t.reason,
            t.error, t.journal, t.parents
    FROM taken t JOIN lines l ON l.tenant = t.tenant AND l.queue = t.queue;
END
$$;
