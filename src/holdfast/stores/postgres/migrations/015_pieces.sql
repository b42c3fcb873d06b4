-- What a claim takes of a pack is held as a piece; layout.py says why. What a piece is, how one is
-- found and read, how jobs leave it, and who must know of it.

-- == the log ==

-- A fact about many jobs that are alike is one row: `number` of them in `ids`, the first of which is
-- `job_id`. Theirs are the cursors from the row's own on, so a number of the sequence is the first of
-- 128 of them.
ALTER TABLE holdfast.events ADD COLUMN number integer NOT NULL DEFAULT 1,
    ADD COLUMN last_id text COLLATE "C", ADD COLUMN ids text[];
ALTER TABLE holdfast.events ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX events_many ON holdfast.events (tenant, job_id, last_id) WHERE ids IS NOT NULL;
ALTER SEQUENCE holdfast.cursors INCREMENT BY 128;
SELECT setval('holdfast.cursors', (last_value / 128 + 1) * 128, false) FROM holdfast.cursors;

-- The last cursor that was drawn, with those that come with it.
CREATE FUNCTION holdfast.drawn() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN is_called THEN last_value + 127 ELSE last_value - 1 END
        FROM holdfast.cursors
    );
END
$$;

-- To be called before a transaction draws its first cursor. The lock tells readers of the log that
-- cursors from here on may still be on their way: commits do not come in the order of cursors.
CREATE OR REPLACE FUNCTION holdfast.announce() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    own text := 'holdfast.' || pg_current_xact_id()::text;
BEGIN
    IF current_setting('holdfast_log.announced', true) IS DISTINCT FROM own THEN
        PERFORM pg_advisory_xact_lock_shared(
            hashtext('holdfast.events'), (holdfast.drawn() >> 7 & 2147483647)::integer
        ), set_config('holdfast_log.announced', own, true);
    END IF;
END
$$;

-- Up to which cursor every event is there for good. The head is read before the locks: who has no
-- lock yet draws higher ones.
CREATE OR REPLACE FUNCTION holdfast.horizon() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head bigint := holdfast.drawn();
    lowest bigint;
BEGIN
    -- A lock's number says what was drawn before it, in steps of the sequence.
    SELECT min(head - (((head >> 7) - objid::bigint & 2147483647) << 7)) INTO lowest FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock' AND granted
        AND classid::bigint = (hashtext('holdfast.events')::bigint & 4294967295)
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
    RETURN greatest(least(head, lowest), 0);
END
$$;

-- == what a piece is ==

CREATE TABLE holdfast.pieces (
    seq          bigint   NOT NULL PRIMARY KEY,
    rank         bigint   NOT NULL,
    at           bigint   NOT NULL,
    since        bigint   NOT NULL,
    until        bigint   NOT NULL,
    keep_us      bigint   NOT NULL,
    version      integer  NOT NULL,
    max_attempts integer  NOT NULL,
    number       integer  NOT NULL,
    has          integer  NOT NULL,
    gone         bit(128) NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    codec        text COLLATE "C" NOT NULL,
    nonce        text COLLATE "C" NOT NULL,
    worker       text COLLATE "C" NOT NULL,
    first_id     text COLLATE "C" NOT NULL,
    last_id      text COLLATE "C" NOT NULL,
    rules        text     NOT NULL,
    sizes        integer[] NOT NULL,
    ids          text[],
    payloads     bytea[]
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 2000, toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0
);
-- NULL where the piece is a whole pack, whose row stays for them, with nothing left to take.
ALTER TABLE holdfast.pieces ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE holdfast.pieces ALTER COLUMN payloads SET STORAGE EXTERNAL;
-- Not unique: the id of a job that has ended, in a piece that has not, may come again.
CREATE INDEX pieces_name ON holdfast.pieces (tenant, first_id, last_id);

-- The jobs that are still in a piece, as they would stand in `jobs`.
CREATE FUNCTION holdfast.members(p holdfast.pieces) RETURNS SETOF holdfast.jobs LANGUAGE sql STABLE
AS $$
    SELECT p.seq + u.n - 1, -p.rank, p.at, p.at, p.since, NULL::bigint, p.until, p.keep_us,
        p.version, 1, p.max_attempts, 1, 0, 0, coalesce(octet_length(u.payload), 0), 0::smallint,
        0::smallint, 'processing', p.tenant, u.id, p.queue, p.type, p.codec,
        p.nonce || '.' || p.seq + u.n - 1, p.worker, NULL::text, NULL::text, NULL::text[],
        NULL::text, p.rules, NULL::text, NULL::text, NULL::text, u.payload
    FROM (
        SELECT p.ids, p.payloads WHERE p.ids IS NOT NULL
        UNION ALL
        SELECT k.ids, k.payloads FROM holdfast.packs k WHERE k.seq = p.seq AND p.ids IS NULL
    ) b CROSS JOIN LATERAL unnest(b.ids, b.payloads) WITH ORDINALITY AS u(id, payload, n)
    WHERE get_bit(p.gone, u.n::integer - 1) = 0
$$;

CREATE OR REPLACE VIEW holdfast.living AS
SELECT j.* FROM holdfast.jobs j
UNION ALL
SELECT m.* FROM holdfast.packs p CROSS JOIN LATERAL holdfast.members(p) m
UNION ALL
SELECT m.* FROM holdfast.pieces p CROSS JOIN LATERAL holdfast.members(p) m;

-- == found ==

-- The pieces that hold, or held, jobs of these sequences. Those of a pack are in one block of 128;
-- most calls are about rows alone, so it is asked first whether there is any piece among them.
CREATE FUNCTION holdfast.pieces_of(of_seqs bigint[]) RETURNS bigint[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    low bigint;
    high bigint;
BEGIN
    SELECT min(u.seq) & -128, max(u.seq) INTO low, high FROM unnest(of_seqs) AS u(seq);
    PERFORM FROM holdfast.pieces p WHERE p.seq >= low AND p.seq <= high LIMIT 1;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT p.seq FROM (
            SELECT u.seq & -128 AS block, array_agg(u.seq) AS seqs
            FROM unnest(of_seqs) AS u(seq) GROUP BY u.seq & -128
        ) b CROSS JOIN LATERAL (
            SELECT x.seq, x.seq + x.number AS high FROM holdfast.pieces x
            WHERE x.seq >= b.block AND x.seq < b.block + 128
        ) p
        WHERE EXISTS (
            SELECT FROM unnest(b.seqs) AS u(seq) WHERE u.seq >= p.seq AND u.seq < p.high
        )
    );
END
$$;

-- The sequence of a job that is in a piece. Stable, so that it sees what its caller's statement
-- sees.
CREATE FUNCTION holdfast.held_as(of_tenant text, of_id text) RETURNS bigint LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT p.seq + f.place - 1 FROM holdfast.pieces p
        CROSS JOIN LATERAL (
            SELECT array_position(
                coalesce(p.ids, (SELECT k.ids FROM holdfast.packs k WHERE k.seq = p.seq)), of_id
            ) AS place
        ) f
        WHERE p.tenant = of_tenant AND p.first_id BETWEEN holdfast.stem(of_id) AND of_id
            AND p.last_id >= of_id AND get_bit(p.gone, f.place - 1) = 0
        ORDER BY p.first_id DESC LIMIT 1
    );
END
$$;

-- Whether any of these jobs may be in a piece: one look for each tenant.
CREATE FUNCTION holdfast.held_between(tenants text[], ids text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT u.tenant, min(u.id COLLATE "C") AS low, max(u.id COLLATE "C") AS high
            FROM unnest(tenants, ids) AS u(tenant, id) GROUP BY u.tenant
        ) asked CROSS JOIN LATERAL (
            SELECT FROM holdfast.pieces p
            WHERE p.tenant = asked.tenant
                AND p.first_id BETWEEN holdfast.stem(asked.low) AND asked.high
                AND p.last_id >= asked.low
            LIMIT 1
        ) p
    );
END
$$;

-- Whether any of these jobs of a tenant, whose ids grow, is in a piece.
CREATE FUNCTION holdfast.is_held(of_tenant text, of_ids text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.pieces p
        WHERE p.tenant = of_tenant AND p.last_id >= of_ids[1]
            AND p.first_id BETWEEN holdfast.stem(of_ids[1]) AND of_ids[cardinality(of_ids)]
    ) AND EXISTS (
        SELECT FROM unnest(of_ids) AS u(id) WHERE holdfast.held_as(of_tenant, u.id) IS NOT NULL
    );
END
$$;

-- Whether any of these jobs of a tenant is in a pack or a piece.
CREATE OR REPLACE FUNCTION holdfast.is_packed(of_tenant text, ids text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN holdfast.packed_between(array_fill(of_tenant, ARRAY[cardinality(ids)]), ids) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id) WHERE holdfast.pack_of(of_tenant, u.id) IS NOT NULL
    ) OR holdfast.is_held(of_tenant, ids);
END
$$;

-- The jobs in pieces that a selection reaches, as `packed`. Each piece has one at least; but of the
-- one that `after` is in they may all be on its other side.
CREATE FUNCTION holdfast.held(
    of_tenant text, of_ids text[], of_queues text[], of_types text[], created_from bigint,
    created_before bigint, after bigint, newest boolean, most bigint
) RETURNS SETOF holdfast.jobs LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off AS $$
BEGIN
    IF of_ids IS NOT NULL AND of_tenant IS NOT NULL THEN
        RETURN QUERY
        SELECT m.* FROM unnest(holdfast.pieces_of(ARRAY(
            SELECT holdfast.held_as(of_tenant, u.id) FROM unnest(of_ids) AS u(id)
        ))) AS f(seq)
        JOIN holdfast.pieces p ON p.seq = f.seq CROSS JOIN LATERAL holdfast.members(p) m
        WHERE m.id = ANY (of_ids);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT m.* FROM (
        SELECT x AS piece FROM holdfast.pieces x
        WHERE (of_tenant IS NULL OR x.tenant = of_tenant)
            AND (of_queues IS NULL OR x.queue = ANY (of_queues))
            AND (of_types IS NULL OR x.type = ANY (of_types))
            AND (created_from IS NULL OR x.at >= created_from)
            AND (created_before IS NULL OR x.at < created_before)
            AND (after IS NULL OR CASE WHEN newest THEN x.seq < after
                ELSE x.seq + x.number > after + 1 END)
            AND (of_ids IS NULL OR of_ids && coalesce(
                x.ids, (SELECT k.ids FROM holdfast.packs k WHERE k.seq = x.seq)
            ))
        ORDER BY CASE WHEN newest THEN -x.seq ELSE x.seq END LIMIT most + 1
    ) f CROSS JOIN LATERAL holdfast.members(f.piece) m;
END
$$;

-- == packs, but those that are there for a piece alone ==

-- Whether any of these jobs may be in a pack: one look for each tenant.
CREATE OR REPLACE FUNCTION holdfast.packed_between(tenants text[], ids text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT u.tenant, min(u.id COLLATE "C") AS low, max(u.id COLLATE "C") AS high
            FROM unnest(tenants, ids) AS u(tenant, id) GROUP BY u.tenant
        ) asked CROSS JOIN LATERAL (
            SELECT FROM holdfast.packs p
            WHERE p.tenant = asked.tenant
                AND p.first_id BETWEEN holdfast.stem(asked.low) AND asked.high
                AND p.last_id >= asked.low AND p.taken < p.number
            LIMIT 1
        ) p
    );
END
$$;

-- Packs of a selection in the order of their sequence, as many as it takes for so many jobs after
-- that one. With ids: those that hold them.
CREATE OR REPLACE FUNCTION holdfast.packs_for(
    of_tenant text, of_ids text[], of_queues text[], of_types text[], created_from bigint,
    created_before bigint, after bigint, newest boolean, most bigint
) RETURNS SETOF holdfast.packs LANGUAGE plpgsql STABLE AS $$
DECLARE
    pack holdfast.packs;
    given bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.packs) THEN
        RETURN;
    END IF;
    IF of_ids IS NOT NULL THEN
        RETURN QUERY
        SELECT p.* FROM (
            SELECT DISTINCT holdfast.pack_of(t.tenant, i.id) AS seq
            FROM unnest(of_ids) AS i(id) CROSS JOIN (
                SELECT of_tenant AS tenant WHERE of_tenant IS NOT NULL
                UNION ALL
                SELECT DISTINCT x.tenant FROM holdfast.packs x WHERE of_tenant IS NULL
            ) t
        ) f JOIN holdfast.packs p ON p.seq = f.seq;
        RETURN;
    END IF;
    after := coalesce(after, CASE WHEN newest THEN 9223372036854775807 ELSE 0 END);
    -- Planned for this very selection, so that it is walked by the key and no further than needed.
    FOR pack IN EXECUTE format(
        'SELECT * FROM holdfast.packs p
        WHERE p.taken < p.number AND ($1 IS NULL OR p.tenant = $1)
            AND ($2 IS NULL OR p.queue = ANY ($2))
            AND ($3 IS NULL OR p.type = ANY ($3)) AND ($4 IS NULL OR p.at >= $4)
            AND ($5 IS NULL OR p.at < $5) AND %s ORDER BY p.seq %s',
        CASE WHEN newest THEN 'p.seq < $6 AND p.seq + p.taken < $6'
            ELSE 'p.seq > $6 - 128 AND p.seq + p.number > $6 + 1' END,
        CASE WHEN newest THEN 'DESC' ELSE 'ASC' END
    ) USING of_tenant, of_queues, of_types, created_from, created_before, after
    LOOP
        EXIT WHEN given >= most;
        RETURN NEXT pack;
        given := given + CASE
            WHEN newest THEN least(pack.seq + pack.number, after) - pack.seq - pack.taken
            ELSE pack.seq + pack.number - greatest(pack.seq + pack.taken, after + 1) END;
    END LOOP;
END
$$;

-- The jobs of those packs.
CREATE OR REPLACE FUNCTION holdfast.packed(
    of_tenant text, of_ids text[], of_queues text[], of_types text[], created_from bigint,
    created_before bigint, after bigint, newest boolean, most bigint
) RETURNS SETOF holdfast.jobs LANGUAGE sql STABLE AS $$
    SELECT m.* FROM holdfast.packs_for(
        of_tenant, of_ids, of_queues, of_types, created_from, created_before, after, newest, most
    ) p CROSS JOIN LATERAL holdfast.members(p) m
$$;

-- Opens packs: the jobs that are still in them stand in rows from now on, as if they had come so.
-- Nothing is counted or recorded, for that was done when they came. The caller has the lock of
-- claims, as everybody has who changes a pack. A job whose id was taken by somebody who could not
-- see the pack, in a transaction with a snapshot from before it, is that one's: it goes, and is
-- counted off.
CREATE OR REPLACE FUNCTION holdfast.open_packs(of_seqs bigint[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.packs p WHERE p.seq = ANY (of_seqs) AND p.taken < p.number
        RETURNING p AS pack
    ), came AS MATERIALIZED (
        SELECT m.* FROM gone g CROSS JOIN LATERAL holdfast.members(g.pack) m
    ), opened AS (
        INSERT INTO holdfast.jobs SELECT * FROM came ON CONFLICT DO NOTHING
        RETURNING seq, priority, run_at, tenant, queue
    ), stands AS (
        INSERT INTO holdfast.ready
        SELECT o.seq, -o.priority, o.run_at, NULL, 0, o.tenant, o.queue, NULL FROM opened o
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes)
        SELECT c.tenant, c.queue, -count(*), -sum(c.size) FROM came c
        WHERE c.seq NOT IN (SELECT o.seq FROM opened o) GROUP BY c.tenant, c.queue
    )
    SELECT count(*) INTO number FROM opened;
    RETURN number;
END
$$;

-- Opens the first packs of a line, for so many jobs.
CREATE OR REPLACE FUNCTION holdfast.open_front(
    of_tenant text, of_queue text, most bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    pack bigint;
    opened bigint := 0;
BEGIN
    WHILE opened < most LOOP
        SELECT p.seq INTO pack FROM holdfast.packs p
        WHERE p.queue = of_queue AND p.tenant = of_tenant AND p.taken < p.number
        ORDER BY p.rank, p.seq LIMIT 1;
        EXIT WHEN NOT FOUND;
        opened := opened + holdfast.open_packs(ARRAY[pack]);
    END LOOP;
END
$$;

-- Notes where the living entries of indexes begin: of ready jobs in these lines (whose first new
-- ones are given), of leases, and of what is due. An old snapshot keeps dead entries in place, and
-- claims must not walk over them. What comes in later says so in its delta.
CREATE OR REPLACE FUNCTION holdfast.raise_floors(
    tenants text[], queues text[], ranks bigint[], seqs bigint[], new_due bigint, new_held bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
    past bigint;
    held bigint;
BEGIN
    UPDATE holdfast.counts c SET floor_rank = coalesce(f.rank, 9223372036854775807),
        floor_seq = coalesce(f.seq, 9223372036854775807)
    FROM (
        SELECT u.tenant, u.queue, first.rank, first.seq
        FROM unnest(tenants, queues, ranks, seqs) AS u(tenant, queue, rank, seq)
        JOIN holdfast.counts k ON k.kind = 'queue' AND k.tenant = u.tenant AND k.part = u.queue
        CROSS JOIN LATERAL holdfast.earlier_of(k.floor_rank, k.floor_seq, u.rank, u.seq) low
        LEFT JOIN LATERAL (
            SELECT f.rank, f.seq FROM (
                (
                    SELECT r.rank, r.seq FROM holdfast.ready r
                    WHERE r.gate = 0 AND r.queue = u.queue AND r.tenant = u.tenant
                        AND (r.rank, r.seq) >= (low.rank, low.seq)
                    ORDER BY r.rank, r.seq LIMIT 1
                ) UNION ALL (
                    SELECT p.rank, p.seq FROM holdfast.packs p
                    WHERE p.queue = u.queue AND p.tenant = u.tenant AND p.taken < p.number
                        AND (p.rank, p.seq) >= (low.rank, low.seq & -128)
                    ORDER BY p.rank, p.seq LIMIT 1
                )
            ) f ORDER BY f.rank, f.seq LIMIT 1
        ) first ON true
    ) f
    WHERE c.kind = 'queue' AND c.tenant = f.tenant AND c.part = f.queue;
    SELECT last_value INTO last FROM holdfast.instants;
    SELECT least(due_floor, new_due), least(held_floor, new_held) INTO past, held
    FROM holdfast.heads;
    UPDATE holdfast.heads h SET held_floor = coalesce((
        SELECT l.until FROM holdfast.leases l WHERE NOT l.spent AND l.until >= held
        ORDER BY l.until LIMIT 1
    ), 9223372036854775807), due_floor = least(last, (
        SELECT d.run_at FROM holdfast.due d WHERE d.run_at >= past ORDER BY d.run_at LIMIT 1
    ));
END
$$;

-- The first jobs of a line of a tenant without settings: those in rows, and how many of which
-- packs. All of a pack stands at one place of the order, since no other job has a seq between its
-- first and its last.
CREATE OR REPLACE FUNCTION holdfast.pick_front(
    line holdfast.line, wanted bigint, excluded text[], now bigint,
    OUT seqs bigint[], OUT packs bigint[], OUT numbers integer[]
) LANGUAGE plpgsql AS $$
DECLARE
    pack record;
    low_rank bigint := line.low_rank;
    low_seq bigint := line.low_seq;
    pack_seq bigint;
    rows bigint[];
    high_rank bigint;
    high_seq bigint;
    room bigint;
BEGIN
    FOR pass IN 1..2 LOOP
        seqs := '{}'; packs := '{}'; numbers := '{}';
        room := wanted;
        pack_seq := low_seq & -128;
        LOOP
            SELECT p.seq, p.rank, p.seq + p.taken AS place, p.number - p.taken AS has INTO pack
            FROM holdfast.packs p
            WHERE p.queue = line.queue AND p.tenant = line.tenant AND p.taken < p.number
                AND (p.rank, p.seq) >= (low_rank, pack_seq)
            ORDER BY p.rank, p.seq LIMIT 1;
            high_rank := coalesce(pack.rank, 9223372036854775807);
            high_seq := coalesce(pack.place, 9223372036854775807);
            rows := ARRAY(
                SELECT r.seq FROM holdfast.ready r CROSS JOIN LATERAL (
                    SELECT FROM holdfast.jobs j
                    WHERE j.seq = r.seq AND j.state = 'enqueued' AND j.late = 0
                    LIMIT 1 FOR UPDATE SKIP LOCKED
                ) job
                WHERE r.gate = 0 AND r.queue = line.queue AND r.tenant = line.tenant
                    AND (r.expires_at IS NULL OR r.expires_at > now)
                    AND (r.group_name IS NULL OR NOT r.group_name = ANY (excluded))
                    AND (r.rank, r.seq) >= (low_rank, low_seq)
                    AND (r.rank, r.seq) < (high_rank, high_seq)
                ORDER BY r.rank, r.seq LIMIT room
            );
            seqs := seqs || rows;
            room := room - cardinality(rows);
            EXIT WHEN room = 0 OR pack.seq IS NULL;
            packs := packs || pack.seq;
            numbers := numbers || least(room, pack.has)::integer;
            room := room - least(room, pack.has);
            EXIT WHEN room = 0;
            low_rank := pack.rank;
            low_seq := pack.place;
            pack_seq := pack.seq + 1;
        END LOOP;
        EXIT WHEN room = 0;
        -- Fewer than there should be: once more from the very beginning, lest one be forgotten.
        -- What was picked is locked by us and is picked again.
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
END
$$;

-- == left ==

-- Has jobs leave these pieces, whose locks the caller has: so many of each, with these bits. The
-- last ones take the piece with them, and the pack if it was the whole of one.
CREATE FUNCTION holdfast.leave(of_pieces bigint[], numbers integer[], bits bit[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..coalesce(cardinality(of_pieces), 0) LOOP
        UPDATE holdfast.pieces p SET has = p.has - numbers[i], gone = p.gone | bits[i]
        WHERE p.seq = of_pieces[i] AND p.has > numbers[i];
        IF NOT FOUND THEN
            DELETE FROM holdfast.pieces p WHERE p.seq = of_pieces[i];
            DELETE FROM holdfast.packs p WHERE p.seq = of_pieces[i] AND p.taken = p.number;
        END IF;
    END LOOP;
END
$$;

-- Lets those of these jobs that are in pieces stand in rows from now on, leased as they are. The
-- row of a piece is its lock: it is waited for, and what the piece has then is read anew. Nothing
-- is recorded, and counted only that a job goes whose id somebody with an old snapshot took; see
-- `open_packs`.
CREATE FUNCTION holdfast.open_held(of_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
DECLARE
    found bigint[] := holdfast.pieces_of(of_seqs);
    went record;
BEGIN
    IF cardinality(found) = 0 THEN
        RETURN 0;
    END IF;
    PERFORM FROM holdfast.pieces p WHERE p.seq = ANY (found) ORDER BY p.seq FOR UPDATE;
    WITH came AS MATERIALIZED (
        SELECT p.seq AS piece, m AS job
        FROM holdfast.pieces p CROSS JOIN LATERAL holdfast.members(p) m
        WHERE p.seq = ANY (found) AND m.seq IN (SELECT u.seq FROM unnest(of_seqs) AS u(seq))
    ), opened AS (
        INSERT INTO holdfast.jobs SELECT (c.job).* FROM came c ON CONFLICT DO NOTHING
        RETURNING seq, lease_until, attempt >= max_attempts AS spent
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT o.lease_until, o.spent, array_agg(o.seq) FROM opened o
        GROUP BY o.lease_until, o.spent
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, processing, bytes)
        SELECT (c.job).tenant, (c.job).queue, -count(*), -sum((c.job).size) FROM came c
        WHERE (c.job).seq NOT IN (SELECT o.seq FROM opened o)
        GROUP BY (c.job).tenant, (c.job).queue
    ), summed AS (
        SELECT c.piece, count(*)::integer AS number,
            bit_or(B'1'::bit(128) >> ((c.job).seq - c.piece)::integer) AS bits
        FROM came c GROUP BY c.piece
    )
    SELECT array_agg(s.piece) AS pieces, array_agg(s.number) AS numbers, array_agg(s.bits) AS bits,
        coalesce(sum(s.number), 0) AS number
    INTO went FROM summed s;
    PERFORM holdfast.leave(went.pieces, went.numbers, went.bits);
    RETURN went.number;
END
$$;

-- The same for those of these pieces whose lease has lapsed, for so many jobs. Who has the lock of
-- one just now is not waited for, for that may take long: `leases` still names it.
CREATE FUNCTION holdfast.open_lapsed(of_pieces bigint[], now bigint, most bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found bigint[] := ARRAY(
        SELECT p.seq FROM holdfast.pieces p WHERE p.seq = ANY (of_pieces) AND p.until <= now
        ORDER BY p.until, p.seq LIMIT most FOR UPDATE SKIP LOCKED
    );
BEGIN
    IF cardinality(found) > 0 THEN
        PERFORM holdfast.open_held(ARRAY(
            SELECT f.seq + place FROM (
                SELECT p.seq, p.number, sum(p.has) OVER (ORDER BY p.until, p.seq) - p.has AS before
                FROM holdfast.pieces p WHERE p.seq = ANY (found)
            ) f CROSS JOIN LATERAL generate_series(0, f.number - 1) place WHERE f.before < most
        ));
    END IF;
END
$$;

-- The same for all leases, as upkeep wants it.
CREATE FUNCTION holdfast.open_expired(now bigint, most bigint) RETURNS void LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
BEGIN
    PERFORM holdfast.open_lapsed(ARRAY(
        SELECT u.seq FROM holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS u(seq)
        WHERE l.spent IN (true, false) AND l.until <= now
    ), now, most);
END
$$;

-- Opens packs that hold these jobs, a few at a time, for claims wait meanwhile; and lets those that
-- are in pieces stand in rows. The caller repeats it until nothing more comes out.
CREATE OR REPLACE FUNCTION holdfast.open_named(tenants text[], ids text[]) RETURNS bigint
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
DECLARE
    number bigint := 0;
BEGIN
    IF holdfast.packed_between(tenants, ids) THEN
        PERFORM holdfast.lock_claims();
        number := holdfast.open_packs(ARRAY(
            SELECT f.pack FROM (
                SELECT DISTINCT holdfast.pack_of(u.tenant, u.id) AS pack
                FROM unnest(tenants, ids) AS u(tenant, id)
            ) f WHERE f.pack IS NOT NULL LIMIT 16
        ));
    END IF;
    -- After the packs: a claim may have taken them from one in between.
    IF holdfast.held_between(tenants, ids) THEN
        number := number + holdfast.open_held(ARRAY(
            SELECT holdfast.held_as(u.tenant, u.id) FROM unnest(tenants, ids) AS u(tenant, id)
        ));
    END IF;
    RETURN number;
END
$$;

-- == enqueue ==

-- Keeps jobs as `enqueue_alike` does, which has the word where they cannot be packed. Their ids
-- were made for this very call: nobody else knows one before it is there. So it is enough to look
-- for known ids in packs before an insert, here and elsewhere. Fresh is false for a call that is
-- repeated.
CREATE OR REPLACE FUNCTION holdfast.enqueue_pack(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, ids text[], payloads bytea[],
    given_now bigint, events boolean, channel text, hint text, fresh boolean
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    number integer := cardinality(ids);
    bytes bigint := (SELECT coalesce(sum(octet_length(u.p)), 0) FROM unnest(payloads) AS u(p));
    ruled boolean := EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = of_tenant);
    head bigint;
    new bigint;
    low integer := 1;
    high integer;
    lows integer[];
    highs integer[];
BEGIN
    -- A claim reads a pack as a whole, so large payloads stay in rows; so do jobs of tenants with
    -- settings, whose claims ask more of each job, and those whose ids do not begin alike.
    IF bytes > number * 1024::bigint OR (fresh AND ruled)
        OR (NOT fresh AND holdfast.is_packed(of_tenant, ids))
        OR holdfast.stem(ids[1]) <> holdfast.stem(ids[number]) AND number < 8 * (
            SELECT count(DISTINCT holdfast.stem(u.id)) FROM unnest(ids) AS u(id)
        )
    THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    WHILE low <= number LOOP
        high := least(low + 127, number);
        WHILE holdfast.stem(ids[high]) <> holdfast.stem(ids[low]) LOOP
            high := high - 1;
        END LOOP;
        INSERT INTO holdfast.packs VALUES (
            nextval('holdfast.seqs'), -of_priority, now, of_keep, of_version, of_attempts,
            high - low + 1, 0, of_tenant, of_queue, of_type, of_codec, ids[low], ids[high],
            of_rules, ids[low:high], payloads[low:high]
        ) RETURNING seq INTO new;
        head := coalesce(head, new);
        lows := lows || low;
        highs := highs || high;
        low := high + 1;
    END LOOP;
    -- After the insert, for which a repeated call waits until its first try has ended: those jobs
    -- may be anywhere by now. First between all ids, see layout.py.
    IF (ruled AND NOT fresh) OR holdfast.is_held(of_tenant, ids) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.tenant = of_tenant AND j.id BETWEEN ids[1] AND ids[number]
    ) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id)
        JOIN holdfast.jobs j ON j.tenant = of_tenant AND j.id = u.id
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF NOT fresh AND holdfast.ended_between(array_fill(of_tenant, ARRAY[number]), ids) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id)
        JOIN holdfast.history h ON h.tenant = of_tenant AND h.id = u.id
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, number, bytes, -of_priority, head);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', of_tenant, ids[u.low], of_queue,
            of_type, 0, 0, NULL, NULL, u.high - u.low + 1, ids[u.high], ids[u.low:u.high]
        FROM unnest(lows, highs) AS u(low, high);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
EXCEPTION WHEN unique_violation OR SQLSTATE 'HF001' THEN
    RETURN QUERY SELECT * FROM holdfast.enqueue_alike(
        of_tenant, of_queue, of_type, of_codec, of_version, of_rules, of_priority, of_attempts,
        of_keep, ids, payloads, given_now, events, channel, hint,
        fresh AND SQLSTATE = 'HF001' AND (ruled OR bytes > number * 1024::bigint)
    );
END
$$;

-- What does it all with care knows nothing of packs and pieces: ids that are in one are answered
-- here, and the rest is left to it. None is opened for that, since this may run in somebody's long
-- transaction. All are looked for in one statement, which finds a job on its way from a pack to a
-- piece in one of them.
CREATE OR REPLACE FUNCTION holdfast.enqueue(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    fresh boolean DEFAULT false
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off AS $$
DECLARE
    known holdfast.answer[];
    others integer[];
BEGIN
    IF NOT (holdfast.packed_between(tenants, ids) OR holdfast.held_between(tenants, ids)) THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_rows(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, delays,
            run_at_givens, ttls, keys, key_lengths, groups, tags, origins, attempts, keeps,
            given_now, events, channel, hint, fresh
        );
        RETURN;
    END IF;
    known := ARRAY(
        SELECT holdfast.earlier(u.n::integer, u.id, u.queue, u.type, w.queue, w.type)
        FROM unnest(tenants, ids, queues, types) WITH ORDINALITY AS u(tenant, id, queue, type, n)
        CROSS JOIN LATERAL (
            SELECT p.queue, p.type FROM holdfast.packs p
            WHERE p.seq = holdfast.pack_of(u.tenant, u.id)
            UNION ALL
            SELECT p.queue, p.type
            FROM unnest(holdfast.pieces_of(ARRAY[holdfast.held_as(u.tenant, u.id)])) AS f(seq)
            JOIN holdfast.pieces p ON p.seq = f.seq
            LIMIT 1
        ) w
    );
    RETURN QUERY SELECT * FROM unnest(known);
    others := ARRAY(
        SELECT n FROM generate_series(1, cardinality(ids)) n
        WHERE n NOT IN (SELECT k.ord FROM unnest(known) k) ORDER BY n
    );
    IF cardinality(others) > 0 THEN
        RETURN QUERY
        SELECT others[a.ord], a.why, a.id, a.queue, a.type, a.has, a.most
        FROM holdfast.enqueue_rows(
            holdfast.only(tenants, others), holdfast.only(ids, others),
            holdfast.only(queues, others), holdfast.only(types, others),
            holdfast.only(codecs, others), holdfast.only(versions, others),
            holdfast.only(payloads, others), holdfast.only(rules, others),
            holdfast.only(priorities, others), holdfast.only(delays, others),
            holdfast.only(run_at_givens, others), holdfast.only(ttls, others),
            holdfast.only(keys, others), holdfast.only(key_lengths, others),
            holdfast.only(groups, others), holdfast.only(tags, others),
            holdfast.only(origins, others), holdfast.only(attempts, others),
            holdfast.only(keeps, others), given_now, events, channel, hint, fresh
        ) a;
    END IF;
END
$$;

-- == claim ==

DROP FUNCTION holdfast.claim(
    text, text, integer, bigint, text[], text[], text[], bigint, boolean, boolean, text, integer,
    integer, integer
);
DROP FUNCTION IF EXISTS holdfast.take_packed(
    bigint[], integer[], integer[], bigint, text, text, bigint, bigint, boolean
);

-- What a claim gives: a row for each job; or for each piece, as its first job, with the ids and the
-- payloads of all of them.
CREATE TYPE holdfast.leased AS (
    visit integer, tenant text, id text, queue text, type text, codec text, version integer,
    payload bytea, rules text, priority bigint, key text, group_name text, tags text[], origin text,
    seq bigint, attempt integer, fence integer, lapses integer, misses integer, created_at bigint,
    updated_at bigint, run_at bigint, expires_at bigint, lease_until bigint, reason text, error text,
    ids text[], payloads bytea[]
);

-- As `take`, for so many jobs from the front of each of these packs, which are of the lines with
-- these places: what is taken of a pack becomes a piece. The line's turn is `take`'s to note,
-- unless what is left of it is given.
CREATE FUNCTION holdfast.take_packed(
    of_packs bigint[], numbers integer[], visits integer[], credit_left bigint,
    for_worker text, nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.leased LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        -- Somebody with an old snapshot took an id that is in the pack; see `open_packs`.
        SELECT FROM unnest(of_packs, numbers) AS u(pack, wanted)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.packs x WHERE x.seq = u.pack LIMIT 1) p
        CROSS JOIN LATERAL (
            SELECT FROM holdfast.jobs j
            WHERE j.tenant = p.tenant AND j.id BETWEEN p.first_id AND p.last_id LIMIT 1
        ) near
        WHERE EXISTS (
            SELECT FROM unnest(p.ids[p.taken + 1:p.taken + u.wanted]) AS i(id) CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs j WHERE j.tenant = p.tenant AND j.id = i.id LIMIT 1
            ) same
        )
    ) THEN
        RAISE unique_violation;
    END IF;
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT u.visit, u.wanted, p.seq + p.taken AS head, p.rank, p.at, p.keep_us, p.version,
            p.max_attempts, p.tenant, p.queue, p.type, p.codec, p.rules,
            u.wanted = p.number AS whole, p.ids[p.taken + 1:p.taken + u.wanted] AS ids,
            p.payloads[p.taken + 1:p.taken + u.wanted] AS payloads
        FROM unnest(of_packs, numbers, visits) AS u(pack, wanted, visit)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.packs x WHERE x.seq = u.pack LIMIT 1) p
    ), taken AS (
        INSERT INTO holdfast.pieces
        SELECT c.head, c.rank, c.at, now, now + lease_us, c.keep_us, c.version, c.max_attempts,
            c.wanted, c.wanted, B'0'::bit(128), c.tenant, c.queue, c.type, c.codec, nonce,
            for_worker, c.ids[1], c.ids[c.wanted], c.rules, ARRAY(
                SELECT coalesce(octet_length(u.payload), 0) FROM unnest(c.payloads) AS u(payload)
            ), CASE WHEN NOT c.whole THEN c.ids END, CASE WHEN NOT c.whole THEN c.payloads END
        FROM chosen c
    ), held AS (
        -- A piece is named by its first job; see `rescue`.
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT now + lease_us, c.max_attempts <= 1, array_agg(c.head)
        FROM chosen c GROUP BY c.max_attempts <= 1
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'leased', t.tenant, t.ids[1], t.queue, t.type, 1, 1,
            now + lease_us, for_worker, t.wanted, t.ids[t.wanted], t.ids
        FROM (SELECT * FROM chosen c WHERE events ORDER BY c.visit, c.rank, c.head) t
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, enqueued, processing, served, credit, held)
        SELECT c.tenant, c.queue, -sum(c.wanted), sum(c.wanted), coalesce(credit_left = 0, false),
            credit_left, now + lease_us
        FROM chosen c GROUP BY c.tenant, c.queue
    )
    SELECT c.visit, c.tenant, NULL::text, c.queue, c.type, c.codec, c.version, NULL::bytea, c.rules,
        -c.rank, NULL::text, NULL::text, NULL::text[], NULL::text, c.head, 1, 1, 0, 0, c.at, now,
        c.at, NULL::bigint, now + lease_us, NULL::text, NULL::text, c.ids, c.payloads
    FROM chosen c;
    -- Each by itself, for there are few. The last part of a pack takes it away; a whole one stays.
    FOR i IN 1..cardinality(of_packs) LOOP
        UPDATE holdfast.packs p SET taken = p.taken + numbers[i]
        WHERE p.seq = of_packs[i]
            AND (p.taken + numbers[i] < p.number OR p.number = numbers[i]);
        IF NOT FOUND THEN
            DELETE FROM holdfast.packs p WHERE p.seq = of_packs[i];
        END IF;
    END LOOP;
END
$$;

-- Leases up to so many jobs. A row without a seq says that sleepers must look again.
CREATE FUNCTION holdfast.claim(
    for_worker text, nonce text, most integer, lease_us bigint, in_tenants text[],
    in_queues text[], excluded text[], given_now bigint, probe boolean, events boolean,
    channel text, repair_most integer, repair_passes integer, lines_per_claim integer
) RETURNS SETOF holdfast.leased LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint;
    room bigint := most;
    asked bigint;
    before bigint;
    dried bigint;
    times bigint;
    more jsonb;
    found holdfast.line[];
    line holdfast.line;
    weights bigint[];
    are_ruled boolean[];
    pick record;
    -- Of this round: each line with what it may take, what it was asked for, and what it gave.
    tenants text[];
    queues text[];
    allowed bigint[];
    left_at bigint[];
    wanted bigint[];
    gave bigint[];
    seqs bigint[];
    plain_tenants text[];
    plain_queues text[];
    plain_quotas bigint[];
    plain_places integer[];
    plain_ranks bigint[];
    plain_seqs bigint[];
    plain_room bigint;
    -- Lines with packs, and what is taken from them.
    are_packed boolean[];
    packs bigint[];
    numbers integer[];
    pack_visits integer[];
    dry_tenants text[] := '{}';
    dry_queues text[] := '{}';
    quota bigint;
    n integer;
    visit integer := 0;
BEGIN
    now := holdfast.instant(given_now);
    IF probe AND NOT EXISTS (SELECT FROM holdfast.lines(in_tenants, in_queues, 1, '{}', '{}'))
        AND NOT holdfast.overdue(now) AND NOT holdfast.unlooked()
    THEN
        RETURN;
    END IF;
    PERFORM holdfast.lock_claims();
    now := holdfast.instant_in_order(given_now);
    IF holdfast.repair(now, events, repair_most, repair_passes) THEN
        RETURN NEXT NULL::holdfast.leased;
        IF channel IS NOT NULL THEN
            PERFORM pg_notify(channel, '*');
        END IF;
    END IF;
    PERFORM holdfast.fold_in_time();
    WHILE room > 0 LOOP
        asked := room;
        found := ARRAY(
            SELECT l FROM holdfast.lines(in_tenants, in_queues, room, dry_tenants, dry_queues) l
            ORDER BY l.turn LIMIT room
        );
        EXIT WHEN cardinality(found) = 0;
        line := found[1];
        IF cardinality(found) = 1
            AND NOT EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = line.tenant)
        THEN
            -- Nearly every claim of an idle worker: one line, that nothing was set for.
            quota := CASE WHEN line.credit > 0 THEN line.credit ELSE room END;
            SELECT * INTO pick FROM holdfast.pick_front(
                line, least(quota, room, line.has), excluded, now
            );
            n := cardinality(pick.seqs)
                + (SELECT coalesce(sum(u.number), 0) FROM unnest(pick.numbers) AS u(number));
            before := CASE WHEN n = room AND n < quota THEN quota - n ELSE 0 END;
            IF cardinality(pick.packs) > 0 THEN
                BEGIN
                    RETURN QUERY SELECT * FROM holdfast.take_packed(
                        pick.packs, pick.numbers,
                        array_fill(visit + 1, ARRAY[cardinality(pick.packs)]), before,
                        for_worker, nonce, lease_us, now, events
                    );
                EXCEPTION WHEN unique_violation THEN
                    PERFORM holdfast.open_packs(pick.packs);
                    CONTINUE;
                END;
            END IF;
            IF cardinality(pick.packs) = 0 OR cardinality(pick.seqs) > 0 THEN
                RETURN QUERY SELECT t.*, NULL::text[], NULL::bytea[] FROM holdfast.take_line(
                    pick.seqs, visit + 1, line.tenant, line.queue, before,
                    for_worker, nonce, lease_us, now, events
                ) t;
            END IF;
            EXIT WHEN n < least(quota, room) AND room > 1;
            IF n < least(quota, room) THEN
                dry_tenants := dry_tenants || line.tenant;
                dry_queues := dry_queues || line.queue;
            END IF;
            room := room - n;
            visit := visit + 1;
            CONTINUE;
        END IF;
        SELECT greatest(
            1, room / sum(w.weight)::bigint,
            room * count(*) / (sum(w.weight)::bigint * lines_per_claim)
        ), array_agg(w.weight ORDER BY w.n), array_agg(w.is_ruled ORDER BY w.n),
            array_agg(w.is_packed ORDER BY w.n)
        INTO times, weights, are_ruled, are_packed FROM (
            SELECT u.n, coalesce(s.weight, 1) AS weight, r.tenant IS NOT NULL AS is_ruled, EXISTS (
                SELECT FROM holdfast.packs p WHERE p.queue = u.queue AND p.tenant = u.tenant
                    AND p.taken < p.number AND (p.rank, p.seq) >= (u.low_rank, u.low_seq & -128)
            ) AS is_packed
            FROM unnest(found) WITH ORDINALITY
                AS u(tenant, queue, has, turn, credit, low_rank, low_seq, n)
            LEFT JOIN holdfast.ruled r ON r.tenant = u.tenant
            LEFT JOIN holdfast.scopes s ON s.kind = 'tenant' AND s.tenant = u.tenant AND s.part = ''
        ) w;
        tenants := '{}'; queues := '{}'; allowed := '{}'; left_at := '{}'; wanted := '{}';
        gave := '{}'; seqs := '{}'; packs := '{}'; numbers := '{}'; pack_visits := '{}';
        plain_tenants := '{}'; plain_queues := '{}'; plain_quotas := '{}'; plain_places := '{}';
        plain_ranks := '{}'; plain_seqs := '{}';
        plain_room := 0;
        n := 0;
        FOREACH line IN ARRAY found LOOP
            EXIT WHEN room = 0;
            n := n + 1;
            quota := CASE WHEN line.credit > 0 THEN line.credit ELSE weights[n] * times END;
            tenants := tenants || line.tenant;
            queues := queues || line.queue;
            allowed := allowed || quota;
            left_at := left_at || room;
            IF are_ruled[n] THEN
                more := coalesce(more, holdfast.running_more());
                IF are_packed[n] THEN
                    -- From before anything was set. Their jobs have no groups: no more of them than
                    -- this can be taken.
                    PERFORM holdfast.open_front(line.tenant, line.queue, least(quota, room));
                END IF;
                SELECT * INTO pick FROM holdfast.pick_ruled(
                    line.tenant, line.queue, least(quota, room), line.low_rank, line.low_seq,
                    excluded, now, more
                );
                more := pick.more;
                wanted := wanted || pick.allowed;
                gave := gave || cardinality(pick.picked)::bigint;
                seqs := seqs || pick.picked;
                room := room - cardinality(pick.picked);
            ELSIF are_packed[n] THEN
                SELECT * INTO pick FROM holdfast.pick_front(
                    line, least(quota, room, line.has), excluded, now
                );
                before := cardinality(pick.seqs)
                    + (SELECT coalesce(sum(u.number), 0) FROM unnest(pick.numbers) AS u(number));
                wanted := wanted || least(quota, room);
                gave := gave || before;
                seqs := seqs || pick.seqs;
                packs := packs || pick.packs;
                numbers := numbers || pick.numbers;
                pack_visits := pack_visits
                    || array_fill(visit + n, ARRAY[cardinality(pick.packs)]);
                room := room - before;
            ELSE
                before := least(quota, room, line.has);
                wanted := wanted || least(quota, room);
                gave := gave || 0::bigint;
                plain_tenants := plain_tenants || line.tenant;
                plain_queues := plain_queues || line.queue;
                plain_quotas := plain_quotas || before;
                plain_places := plain_places || n;
                plain_ranks := plain_ranks || line.low_rank;
                plain_seqs := plain_seqs || line.low_seq;
                plain_room := plain_room + before;
                room := room - before;
            END IF;
        END LOOP;
        IF cardinality(plain_tenants) > 0 THEN
            SELECT * INTO pick FROM holdfast.pick_plain(
                plain_tenants, plain_queues, plain_quotas, plain_places, plain_ranks, plain_seqs,
                excluded, now
            );
            IF coalesce(cardinality(pick.seqs), 0) < plain_room THEN
                -- Fewer than there should be: once more from the very beginning, lest one be
                -- forgotten. What was picked is locked by us and is picked again.
                SELECT * INTO pick FROM holdfast.pick_plain(
                    plain_tenants, plain_queues, plain_quotas, plain_places,
                    array_fill((-9223372036854775808)::bigint, ARRAY[cardinality(plain_ranks)]),
                    array_fill(0::bigint, ARRAY[cardinality(plain_ranks)]), excluded, now
                );
            END IF;
            seqs := seqs || pick.seqs;
            SELECT array_agg(CASE WHEN c.place IS NULL THEN gave[i] ELSE c.number END ORDER BY i)
            INTO gave FROM generate_series(1, n) i LEFT JOIN (
                SELECT u.place, count(p.place) AS number
                FROM unnest(plain_places) AS u(place)
                LEFT JOIN unnest(pick.places) AS p(place) ON p.place = u.place GROUP BY u.place
            ) c ON c.place = i;
            room := room + plain_room - coalesce(cardinality(pick.seqs), 0);
        END IF;
        IF cardinality(packs) > 0 THEN
            BEGIN
                RETURN QUERY SELECT * FROM holdfast.take_packed(
                    packs, numbers, pack_visits, NULL, for_worker, nonce, lease_us, now, events
                );
            EXCEPTION WHEN unique_violation THEN
                PERFORM holdfast.open_packs(packs);  -- The next claim takes them from their rows.
            END;
        END IF;
        RETURN QUERY SELECT t.*, NULL::text[], NULL::bytea[] FROM holdfast.take(
            seqs, visit, tenants, queues,
            -- A turn that a full claim cut short goes on with the next.
            ARRAY(
                SELECT CASE WHEN gave[i] = left_at[i] AND gave[i] < allowed[i]
                    THEN allowed[i] - gave[i] ELSE 0 END FROM generate_series(1, n) i ORDER BY i
            ),
            for_worker, nonce, lease_us, now, events
        ) t;
        SELECT dry_tenants || array_agg(tenants[i] ORDER BY i),
            dry_queues || array_agg(queues[i] ORDER BY i), count(*)
        INTO dry_tenants, dry_queues, dried
        FROM generate_series(1, n) i WHERE gave[i] < wanted[i] OR wanted[i] = 0;
        -- All lines that there are, and none has more: no need to look for others.
        EXIT WHEN dried = cardinality(found) AND dried < asked;
        visit := visit + n;
    END LOOP;
END
$$;

-- Leases that have lapsed; and what `leases` knows of those that ended in time is forgotten.
CREATE OR REPLACE FUNCTION holdfast.rescue(
    now bigint, low bigint, most integer, events boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given tid[];
    moved bigint[];
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    -- Twice: the second time with what came out of pieces, for as many instants at most.
    FOR pass IN 1..2 LOOP
        given := ARRAY(
            SELECT l.ctid FROM holdfast.leases l
            WHERE NOT l.spent AND l.until >= low AND l.until <= now ORDER BY l.until LIMIT 20 * pass
        );
        IF pass = 1 THEN
            PERFORM holdfast.open_lapsed(ARRAY(
                SELECT u.seq FROM holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS u(seq)
                WHERE l.ctid = ANY (given)
            ), now, most);
        END IF;
    END LOOP;
    WITH found AS MATERIALIZED (
        SELECT job.ctid FROM (
            SELECT n.seq FROM holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS n(seq)
            WHERE l.ctid = ANY (given) GROUP BY n.seq ORDER BY min(l.until), n.seq
        ) u CROSS JOIN LATERAL (
            SELECT j.ctid FROM holdfast.jobs j
            WHERE j.seq = u.seq AND j.state = 'processing' AND j.attempt < j.max_attempts
                AND j.lease_until <= now
            LIMIT 1 FOR UPDATE SKIP LOCKED
        ) job LIMIT most
    ), moved AS (
        UPDATE holdfast.jobs j SET state = 'enqueued', lapses = j.lapses + 1, updated_at = now,
            gate = CASE WHEN j.group_name IS NOT NULL
                AND EXISTS (SELECT FROM holdfast.ruled r WHERE r.tenant = j.tenant AND r.grouped)
            THEN 1 ELSE 0 END
        WHERE j.ctid = ANY (ARRAY(SELECT found.ctid FROM found))
        RETURNING j.seq, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence, j.group_name, j.gate,
            j.priority, j.lease_until
    ), told AS (
        INSERT INTO holdfast.deltas
            (tenant, queue, group_name, processing, enqueued, blocked, head_rank, head_seq)
        SELECT tenant, queue, group_name, -count(*), count(*), sum(gate),
            min(-priority) FILTER (WHERE gate = 0), min(seq) FILTER (WHERE gate = 0)
        FROM moved GROUP BY tenant, queue, group_name ORDER BY min(seq)
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'rescued', m.tenant, m.id, m.queue, m.type,
            m.attempt, m.fence
        FROM (SELECT * FROM moved ORDER BY lease_until, seq) m WHERE events
    )
    SELECT array_agg(m.seq) INTO moved FROM moved m;
    PERFORM holdfast.stand(moved);
    -- What somebody has the lock of just now stays named, for that may come to nothing.
    DELETE FROM holdfast.leases l WHERE l.ctid = ANY (given) AND NOT EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.seq = ANY (l.seqs) AND j.state = 'processing' AND j.attempt < j.max_attempts
            AND j.lease_until <= now
    ) AND NOT EXISTS (
        SELECT FROM holdfast.pieces p WHERE p.seq = ANY (l.seqs) AND p.until <= now
    );
    -- There may be more where so many leases were looked at.
    RETURN CASE WHEN cardinality(given) >= 20 THEN most ELSE coalesce(cardinality(moved), 0) END;
END
$$;

-- == settle ==

-- Completes jobs that are in these pieces: gives the places of those that were, and their tenants.
CREATE FUNCTION holdfast.complete_held(
    of_pieces bigint[], seqs bigint[], tokens text[], of_tenants text[], of_ids text[],
    results bytea[], now bigint, events boolean, OUT places integer[], OUT tenants text[]
) LANGUAGE plpgsql AS $$
DECLARE
    went record;
BEGIN
    -- What is read after this is nobody else's to change.
    PERFORM FROM holdfast.pieces p WHERE p.seq = ANY (of_pieces) ORDER BY p.seq FOR UPDATE;
    WITH held AS MATERIALIZED (
        -- Arrays as slices, so that they are read once; the payloads only where they are kept.
        SELECT p.seq, p.seq & -128 AS block, p.seq + p.number AS high, p.rank, p.at, p.keep_us,
            p.version, p.max_attempts, p.gone, p.tenant, p.queue, p.type, p.codec, p.nonce, p.rules,
            p.sizes[:] AS sizes, (coalesce(
                p.ids, (SELECT k.ids FROM holdfast.packs k WHERE k.seq = p.seq)
            ))[:] AS ids, CASE WHEN p.keep_us > 0 THEN (coalesce(
                p.payloads, (SELECT k.payloads FROM holdfast.packs k WHERE k.seq = p.seq)
            ))[:] END AS payloads
        FROM holdfast.pieces p WHERE p.seq = ANY (of_pieces) AND p.until > now
    ), ended AS MATERIALIZED (
        SELECT u.ord, u.seq, u.id, u.result, h.seq AS piece, h.tenant, h.queue, h.type,
            (u.seq - h.seq)::integer AS place, h.sizes[u.seq - h.seq + 1] AS size,
            h.keep_us > 0 AS keeps
        FROM unnest(seqs, tokens, of_tenants, of_ids, results) WITH ORDINALITY
            AS u(seq, token, tenant, id, result, ord)
        JOIN held h ON h.block = u.seq & -128
        WHERE u.seq >= h.seq AND u.seq < h.high AND get_bit(h.gone, (u.seq - h.seq)::integer) = 0
            AND u.token = h.nonce || '.' || u.seq AND u.tenant = h.tenant
            AND u.id = h.ids[u.seq - h.seq + 1]
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, finished_at, keep_until, keep_us,
            version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id, queue,
            type, codec, rules, payload, result
        )
        SELECT e.seq, -h.rank, h.at, h.at, now, now, now + h.keep_us, h.keep_us, h.version, 1,
            h.max_attempts, 1, 0, 0, e.size, 'completed', h.tenant, e.id, h.queue, h.type, h.codec,
            h.rules, h.payloads[e.place + 1], e.result
        FROM ended e JOIN held h ON h.seq = e.piece WHERE e.keeps
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'completed', e.tenant, e.ids[1], e.queue, e.type,
            1, 1, NULL, NULL, e.number, e.ids[e.number], e.ids
        FROM (
            SELECT x.tenant, x.queue, x.type, count(*)::integer AS number,
                array_agg(x.id ORDER BY x.place) AS ids
            FROM ended x WHERE events GROUP BY x.piece, x.tenant, x.queue, x.type
            ORDER BY min(x.ord)
        ) e
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, processing, completed, bytes)
        SELECT e.tenant, e.queue, -count(*), count(*) FILTER (WHERE e.keeps), -sum(e.size)
        FROM ended e GROUP BY e.tenant, e.queue
        RETURNING tenant
    ), summed AS (
        SELECT e.piece, count(*)::integer AS number, bit_or(B'1'::bit(128) >> e.place) AS bits
        FROM ended e GROUP BY e.piece
    )
    SELECT array_agg(s.piece) AS pieces, array_agg(s.number) AS numbers, array_agg(s.bits) AS bits,
        (SELECT array_agg(e.ord::integer) FROM ended e) AS places,
        (SELECT array_agg(t.tenant) FROM told t) AS tenants
    INTO went FROM summed s;
    PERFORM holdfast.leave(went.pieces, went.numbers, went.bits);
    places := went.places;
    tenants := went.tenants;
END
$$;

-- Plain completions, nearly every ack. Gives the places of those that were completed, NULL if all
-- were (whatever it leaves, the rules must look at), and the lines that may have come up.
CREATE OR REPLACE FUNCTION holdfast.complete(
    seqs bigint[], tokens text[], of_tenants text[], of_ids text[], results bytea[],
    given_now bigint, events boolean, channel text, sender text,
    OUT places integer[], OUT tenants text[], OUT queues text[]
) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    found bigint[];
    held_places integer[];
    held_tenants text[];
    done record;
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    -- First in pieces: what is moved from one to a row meanwhile is found there.
    found := holdfast.pieces_of(seqs);
    IF cardinality(found) > 0 THEN
        SELECT h.places, h.tenants INTO held_places, held_tenants FROM holdfast.complete_held(
            found, seqs, tokens, of_tenants, of_ids, results, now, events
        ) h;
        IF cardinality(held_places) = cardinality(seqs) THEN
            SELECT array_agg(f.t), array_agg(f.q) INTO tenants, queues
            FROM holdfast.tell_freed(held_tenants, channel, sender) f;
            RETURN;
        END IF;
    END IF;
    -- Looked up one by one and taken by their places, never by a join with the table; see `take`.
    WITH named AS MATERIALIZED (
        SELECT u.token, u.result, u.ord, found.ctid AS place
        FROM unnest(seqs, tokens, of_tenants, of_ids, results) WITH ORDINALITY
            AS u(seq, token, tenant, id, result, ord)
        CROSS JOIN LATERAL (
            SELECT j.ctid FROM holdfast.jobs j
            WHERE j.seq = u.seq AND j.token = u.token AND j.tenant = u.tenant AND j.id = u.id LIMIT 1
        ) found
    ), gone AS (
        DELETE FROM holdfast.jobs j USING named n
        WHERE j.ctid = n.place AND j.token = n.token AND j.state = 'processing'
            AND j.lease_until > now
        -- The whole row only where it is kept: it is wide.
        RETURNING n.ord, n.result, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence,
            j.group_name, j.key, j.size, j.keep_us > 0 AS keeps,
            CASE WHEN j.keep_us > 0 THEN j END AS job
    ), kept AS (
        INSERT INTO holdfast.history (
            seq, priority, run_at, created_at, updated_at, expires_at, finished_at, keep_until,
            keep_us, version, attempt, max_attempts, fence, lapses, misses, size, state, tenant, id,
            queue, type, codec, key, group_name, tags, origin, rules, error, progress, payload,
            result
        )
        SELECT k.seq, k.priority, k.run_at, k.created_at, now, k.expires_at, now, now + k.keep_us,
            k.keep_us, k.version, k.attempt, k.max_attempts, k.fence, k.lapses, k.misses, k.size,
            'completed', k.tenant, k.id, k.queue, k.type, k.codec, k.key, k.group_name, k.tags,
            k.origin, k.rules, k.error, k.progress, k.payload, k.result
        FROM (SELECT (g.job).*, g.result FROM gone g WHERE g.keeps) k
    ), freed AS (
        DELETE FROM holdfast.keys k USING gone g
        WHERE g.key IS NOT NULL AND k.tenant = g.tenant AND k.queue = g.queue AND k.type = g.type
            AND k.key = g.key AND k.id = g.id AND coalesce(k.until, 0) <= now
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'completed', g.tenant, g.id, g.queue, g.type,
            g.attempt, g.fence
        FROM (SELECT * FROM gone x ORDER BY x.ord) g WHERE events
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, group_name, processing, completed, bytes)
        SELECT g.tenant, g.queue, g.group_name, -count(*), count(*) FILTER (WHERE g.keeps),
            -sum(g.size)
        FROM gone g GROUP BY g.tenant, g.queue, g.group_name
        RETURNING tenant
    ), last AS (
        SELECT g.* FROM gone g WHERE g.group_name IS NOT NULL ORDER BY g.ord
    )
    SELECT (SELECT array_agg(t.tenant) FROM told t) AS tenants, array_agg(l.tenant) AS of_tenants,
        array_agg(l.group_name) AS groups, array_agg(l.id) AS ids, array_agg(l.queue) AS queues,
        array_agg(l.type) AS types, array_agg(l.attempt) AS attempts, array_agg(l.fence) AS fences,
        held_places || (SELECT array_agg(g.ord::integer) FROM gone g) AS places
    INTO done FROM last l;
    IF events AND done.groups IS NOT NULL THEN
        PERFORM holdfast.tell_drained(
            done.of_tenants, done.groups, done.ids, done.queues, done.types, done.attempts,
            done.fences, now
        );
    END IF;
    IF coalesce(cardinality(done.places), 0) < cardinality(seqs) THEN
        places := coalesce(done.places, '{}');
    END IF;
    SELECT array_agg(f.t), array_agg(f.q) INTO tenants, queues
    FROM holdfast.tell_freed(held_tenants || done.tenants, channel, sender) f;
END
$$;

-- Renews leases. Gives the places of those that were renewed, and their deadlines.
CREATE OR REPLACE FUNCTION holdfast.extend(
    seqs bigint[], tokens text[], tenants text[], ids text[], lengths bigint[], progresses text[],
    given_now bigint, events boolean, OUT ord integer, OUT until bigint
) RETURNS SETOF record LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
BEGIN
    PERFORM holdfast.open_held(seqs);
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH named AS MATERIALIZED (
        SELECT u.token, u.length, u.progress, u.ord, found.ctid AS place
        FROM unnest(seqs, tokens, tenants, ids, lengths, progresses) WITH ORDINALITY
            AS u(seq, token, tenant, id, length, progress, ord)
        CROSS JOIN LATERAL (
            SELECT j.ctid FROM holdfast.jobs j
            WHERE j.seq = u.seq AND j.token = u.token AND j.tenant = u.tenant AND j.id = u.id LIMIT 1
        ) found
    ), renewed AS (
        UPDATE holdfast.jobs j SET lease_until = greatest(j.lease_until, now + n.length),
            progress = coalesce(n.progress, j.progress), updated_at = now
        FROM named n
        WHERE j.ctid = n.place AND j.token = n.token AND j.state = 'processing'
            AND j.lease_until > now
        RETURNING n.ord, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence, j.lease_until, j.seq,
            j.attempt >= j.max_attempts AS spent
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT r.lease_until, r.spent, array_agg(r.seq) FROM renewed r
        GROUP BY r.lease_until, r.spent
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'extended', r.tenant, r.id, r.queue, r.type,
            r.attempt, r.fence, r.lease_until
        FROM (SELECT * FROM renewed x ORDER BY x.ord) r WHERE events
    )
    SELECT r.ord::integer, r.lease_until FROM renewed r;
END
$$;
