-- Jobs that are alike wait in packs; layout.py says why. What a pack is, how one is found, read,
-- opened and made, and how claims take from it.

-- From now on each number of the sequence is the first of 128 that its caller may use.
ALTER SEQUENCE holdfast.seqs INCREMENT BY 128;
SELECT setval('holdfast.seqs', (last_value / 128 + 1) * 128, false) FROM holdfast.seqs;

CREATE TABLE holdfast.packs (
    seq          bigint  NOT NULL PRIMARY KEY,
    rank         bigint  NOT NULL,
    at           bigint  NOT NULL,
    keep_us      bigint  NOT NULL,
    version      integer NOT NULL,
    max_attempts integer NOT NULL,
    number       integer NOT NULL,
    taken        integer NOT NULL DEFAULT 0,
    tenant       text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    codec        text COLLATE "C" NOT NULL,
    first_id     text COLLATE "C" NOT NULL,
    last_id      text COLLATE "C" NOT NULL,
    rules        text    NOT NULL,
    ids          text[]  NOT NULL,
    payloads     bytea[] NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 2000, toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 5000, toast.autovacuum_vacuum_cost_delay = 0
);
-- Not compressed, which would take as long as all the rest of an enqueue.
ALTER TABLE holdfast.packs ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE holdfast.packs ALTER COLUMN payloads SET STORAGE EXTERNAL;
CREATE INDEX packs_line ON holdfast.packs (queue, tenant, rank, seq);
CREATE INDEX packs_ages ON holdfast.packs (tenant, queue, at);
-- Unique for the sake of a call that is repeated while its first try is still under way: it makes
-- the same packs, and waits here.
CREATE UNIQUE INDEX packs_name ON holdfast.packs (tenant, first_id);

-- What all ids of a pack begin with: of those made by the library, a quarter of a second. So few
-- packs may have an id, however many there are.
CREATE FUNCTION holdfast.stem(id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT left(id, 11)
$$;

-- The jobs that are still in a pack, as they would stand in `jobs`.
CREATE FUNCTION holdfast.members(p holdfast.packs) RETURNS SETOF holdfast.jobs LANGUAGE sql STABLE
AS $$
    SELECT p.seq + p.taken + u.n - 1, -p.rank, p.at, p.at, p.at, NULL::bigint, NULL::bigint,
        p.keep_us, p.version, 0, p.max_attempts, 0, 0, 0, coalesce(octet_length(u.payload), 0),
        0::smallint, 0::smallint, 'enqueued', p.tenant, u.id, p.queue, p.type, p.codec, NULL::text,
        NULL::text, NULL::text, NULL::text, NULL::text[], NULL::text, p.rules, NULL::text,
        NULL::text, NULL::text, u.payload
    FROM unnest(p.ids[p.taken + 1:], p.payloads[p.taken + 1:]) WITH ORDINALITY AS u(id, payload, n)
$$;

-- Every job that has not ended, wherever it is. For those who read all of them.
CREATE VIEW holdfast.living AS
SELECT j.* FROM holdfast.jobs j
UNION ALL
SELECT m.* FROM holdfast.packs p CROSS JOIN LATERAL holdfast.members(p) m;

-- The pack that a job is in. Stable, so that it sees what its caller's statement sees.
CREATE FUNCTION holdfast.pack_of(of_tenant text, of_id text) RETURNS bigint LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT p.seq FROM holdfast.packs p
        WHERE p.tenant = of_tenant AND p.first_id BETWEEN holdfast.stem(of_id) AND of_id
            AND p.last_id >= of_id AND of_id = ANY (p.ids[p.taken + 1:])
        LIMIT 1
    );
END
$$;

-- Whether any of these jobs may be in a pack: one look for each tenant.
CREATE FUNCTION holdfast.packed_between(tenants text[], ids text[]) RETURNS boolean
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
                AND p.last_id >= asked.low
            LIMIT 1
        ) p
    );
END
$$;

-- Packs of a selection in the order of their sequence, as many as it takes for so many jobs after
-- that one. With ids: those that hold them.
CREATE FUNCTION holdfast.packs_for(
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
        WHERE ($1 IS NULL OR p.tenant = $1) AND ($2 IS NULL OR p.queue = ANY ($2))
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
CREATE FUNCTION holdfast.packed(
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
CREATE FUNCTION holdfast.open_packs(of_seqs bigint[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.packs p WHERE p.seq = ANY (of_seqs) RETURNING p AS pack
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

-- Opens packs that hold these jobs, a few at a time, for claims wait meanwhile: the caller repeats
-- it until nothing more comes out.
CREATE FUNCTION holdfast.open_named(tenants text[], ids text[]) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT holdfast.packed_between(tenants, ids) THEN
        RETURN 0;
    END IF;
    PERFORM holdfast.lock_claims();
    RETURN holdfast.open_packs(ARRAY(
        SELECT f.pack FROM (
            SELECT DISTINCT holdfast.pack_of(u.tenant, u.id) AS pack
            FROM unnest(tenants, ids) AS u(tenant, id)
        ) f WHERE f.pack IS NOT NULL LIMIT 16
    ));
END
$$;

-- Opens the packs that a selection reaches; of those that it names by ids a few, as above.
CREATE FUNCTION holdfast.open_selected(
    of_tenant text, of_ids text[], of_queues text[], of_types text[], created_from bigint,
    created_before bigint, after bigint, newest boolean, most bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM holdfast.packs) THEN
        RETURN 0;
    END IF;
    PERFORM holdfast.lock_claims();
    RETURN holdfast.open_packs(ARRAY(
        SELECT p.seq FROM holdfast.packs_for(
            of_tenant, of_ids, of_queues, of_types, created_from, created_before, after, newest,
            most
        ) p LIMIT CASE WHEN of_ids IS NOT NULL THEN 16 END
    ));
END
$$;

-- Opens the first packs of a line, for so many jobs.
CREATE FUNCTION holdfast.open_front(of_tenant text, of_queue text, most bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    pack bigint;
    opened bigint := 0;
BEGIN
    WHILE opened < most LOOP
        SELECT p.seq INTO pack FROM holdfast.packs p
        WHERE p.queue = of_queue AND p.tenant = of_tenant ORDER BY p.rank, p.seq LIMIT 1;
        EXIT WHEN NOT FOUND;
        opened := opened + holdfast.open_packs(ARRAY[pack]);
    END LOOP;
END
$$;

-- == enqueue ==

-- Keeps jobs as `enqueue_alike` does, which has the word where they cannot be packed. Their ids
-- were made for this very call: nobody else knows one before it is there. So it is enough to look
-- for known ids in packs before an insert, here and elsewhere. Fresh is false for a call that is
-- repeated.
CREATE FUNCTION holdfast.enqueue_pack(
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
        low := high + 1;
    END LOOP;
    -- After the insert, for which a repeated call waits until its first try has ended: those jobs
    -- may be anywhere by now. First between all ids, see layout.py.
    IF (ruled AND NOT fresh) OR EXISTS (
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
        SELECT nextval('holdfast.cursors'), now, 'enqueued', of_tenant, u.id, of_queue, of_type, 0, 0
        FROM unnest(ids) AS u(id);
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

-- Whether any of these jobs of a tenant is in a pack.
CREATE FUNCTION holdfast.is_packed(of_tenant text, ids text[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN holdfast.packed_between(array_fill(of_tenant, ARRAY[cardinality(ids)]), ids) AND EXISTS (
        SELECT FROM unnest(ids) AS u(id) WHERE holdfast.pack_of(of_tenant, u.id) IS NOT NULL
    );
END
$$;

-- Keeps jobs that are alike: they share all but their payloads and their ids, which grow; none has
-- a key, a group, a delay, tags or a time to live. Answers as `enqueue` does, which does it all
-- where there is a cap to keep or an id that is known.
CREATE OR REPLACE FUNCTION holdfast.enqueue_alike(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, ids text[], payloads bytea[],
    given_now bigint, events boolean, channel text, hint text, fresh boolean
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    number integer := cardinality(ids);
    seqs bigint[];
    bytes bigint;
BEGIN
    IF EXISTS (
        SELECT FROM holdfast.ruled r
        WHERE r.tenant = of_tenant AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL)
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    IF NOT fresh AND holdfast.is_packed(of_tenant, ids) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    -- Without ON CONFLICT, which takes 2 us for each job, of 15.
    WITH new AS (
        INSERT INTO holdfast.jobs (
            seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
            created_at, updated_at, max_attempts, keep_us, size
        )
        SELECT nextval('holdfast.seqs'), of_tenant, u.id, of_queue, of_type, of_codec, of_version,
            u.payload, of_rules, of_priority, now, 'enqueued', now, now, of_attempts, of_keep,
            coalesce(octet_length(u.payload), 0)
        FROM unnest(ids, payloads) AS u(id, payload)
        RETURNING seq, size
    )
    SELECT array_agg(new.seq), sum(new.size) INTO seqs, bytes FROM new;
    -- After the insert: a job of this id that ended just now is in the history by now. First
    -- between all ids, see layout.py.
    IF NOT fresh THEN
        IF EXISTS (
            SELECT FROM holdfast.history h
            WHERE h.tenant = of_tenant AND h.id BETWEEN ids[1] AND ids[number]
        ) THEN
            IF EXISTS (
                SELECT FROM unnest(ids) AS u(id)
                JOIN holdfast.history h ON h.tenant = of_tenant AND h.id = u.id
            ) THEN
                RAISE SQLSTATE 'HF001';
            END IF;
        END IF;
    END IF;
    INSERT INTO holdfast.ready
    SELECT u.seq, -of_priority, now, NULL, 0, of_tenant, of_queue FROM unnest(seqs) AS u(seq);
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, number, bytes, -of_priority, seqs[1]);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', of_tenant, u.id, of_queue, of_type, 0, 0
        FROM unnest(ids) AS u(id);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
EXCEPTION WHEN unique_violation OR SQLSTATE 'HF001' THEN
    RETURN QUERY SELECT * FROM holdfast.enqueue(
        array_fill(of_tenant, ARRAY[number]), ids, array_fill(of_queue, ARRAY[number]),
        array_fill(of_type, ARRAY[number]), array_fill(of_codec, ARRAY[number]),
        array_fill(of_version, ARRAY[number]), payloads, array_fill(of_rules, ARRAY[number]),
        array_fill(of_priority, ARRAY[number]), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        array_fill(of_attempts, ARRAY[number]), array_fill(of_keep, ARRAY[number]), given_now,
        events, channel, hint
    );
END
$$;

-- What does it all with care knows nothing of packs: ids that are in one are answered here, and the
-- rest is left to it. No pack is opened for that, since this may run in somebody's long
-- transaction.
ALTER FUNCTION holdfast.enqueue(
    text[], text[], text[], text[], text[], integer[], bytea[], text[], bigint[], bigint[], bigint[],
    bigint[], text[], bigint[], text[], text[], text[], integer[], bigint[], bigint, boolean, text,
    text, boolean
) RENAME TO enqueue_rows;

-- Of an array the values at these places; of none, none.
CREATE FUNCTION holdfast.only(given anyarray, places integer[]) RETURNS anyarray
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN given IS NOT NULL THEN
        (
            SELECT array_agg(given[u.place] ORDER BY u.n)
            FROM unnest(places) WITH ORDINALITY AS u(place, n)
        )
    END
$$;

CREATE FUNCTION holdfast.enqueue(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    fresh boolean DEFAULT false
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    found bigint[];
    others integer[];
BEGIN
    IF NOT holdfast.packed_between(tenants, ids) THEN
        RETURN QUERY SELECT * FROM holdfast.enqueue_rows(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, delays,
            run_at_givens, ttls, keys, key_lengths, groups, tags, origins, attempts, keeps,
            given_now, events, channel, hint, fresh
        );
        RETURN;
    END IF;
    found := ARRAY(
        SELECT holdfast.pack_of(u.tenant, u.id)
        FROM unnest(tenants, ids) WITH ORDINALITY AS u(tenant, id, n) ORDER BY u.n
    );
    RETURN QUERY
    SELECT (holdfast.earlier(u.n::integer, u.id, u.queue, u.type, p.queue, p.type)).*
    FROM unnest(found, ids, queues, types) WITH ORDINALITY AS u(pack, id, queue, type, n)
    JOIN holdfast.packs p ON p.seq = u.pack;
    others := ARRAY(
        SELECT u.n FROM unnest(found) WITH ORDINALITY AS u(pack, n)
        WHERE u.pack IS NULL ORDER BY u.n
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

-- == counts and views ==

-- Counts every job anew; gives by how many held jobs the counts were off. In one statement, so that
-- jobs and counts are those of one instant. The caller has the lock of claims.
CREATE OR REPLACE FUNCTION holdfast.recount() RETURNS bigint LANGUAGE sql VOLATILE SET jit = off AS $$
    WITH places AS (
        SELECT tenant, queue, group_name, state, count(*) AS number, sum(size) AS bytes,
            count(*) FILTER (WHERE state = 'enqueued' AND (gate = 1 OR late = 1)) AS blocked
        FROM holdfast.living GROUP BY tenant, queue, group_name, state
        UNION ALL
        SELECT tenant, queue, group_name, state, count(*), 0, 0
        FROM holdfast.history GROUP BY tenant, queue, group_name, state
    ), moves AS (
        SELECT tenant, queue, group_name,
            CASE WHEN state = 'waiting' THEN number ELSE 0 END AS waiting,
            CASE WHEN state = 'scheduled' THEN number ELSE 0 END AS scheduled,
            CASE WHEN state = 'enqueued' THEN number ELSE 0 END AS enqueued,
            CASE WHEN state = 'processing' THEN number ELSE 0 END AS processing,
            CASE WHEN state = 'retrying' THEN number ELSE 0 END AS retrying,
            CASE WHEN state = 'completed' THEN number ELSE 0 END AS completed,
            CASE WHEN state = 'failed' THEN number ELSE 0 END AS failed,
            CASE WHEN state = 'canceled' THEN number ELSE 0 END AS canceled, bytes, blocked
        FROM places
        UNION ALL
        SELECT tenant, queue, group_name, -waiting, -scheduled, -enqueued, -processing, -retrying,
            -completed, -failed, -canceled, -bytes, -blocked
        FROM holdfast.deltas WHERE queue IS NOT NULL
    ), scoped AS (
        SELECT 'queue' AS kind, tenant, queue AS part, waiting, scheduled, enqueued, processing,
            retrying, completed, failed, canceled, 0 AS bytes, blocked FROM moves
        UNION ALL
        SELECT 'tenant', tenant, '', waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, 0 FROM moves
        UNION ALL
        SELECT 'group', tenant, group_name, waiting, scheduled, enqueued, processing, retrying,
            completed, failed, canceled, 0, 0 FROM moves WHERE group_name IS NOT NULL
        UNION ALL
        SELECT kind, tenant, part, -waiting, -scheduled, -enqueued, -processing, -retrying,
            -completed, -failed, -canceled, -bytes, -blocked FROM holdfast.counts
    ), wrong AS (
        SELECT kind, tenant, part, sum(waiting) AS waiting, sum(scheduled) AS scheduled,
            sum(enqueued) AS enqueued, sum(processing) AS processing, sum(retrying) AS retrying,
            sum(completed) AS completed, sum(failed) AS failed, sum(canceled) AS canceled,
            sum(bytes) AS bytes, sum(blocked) AS blocked
        FROM scoped GROUP BY kind, tenant, part
        HAVING (sum(waiting), sum(scheduled), sum(enqueued), sum(processing), sum(retrying),
                sum(completed), sum(failed), sum(canceled), sum(bytes), sum(blocked))
            <> (0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    ), mended AS (
        INSERT INTO holdfast.counts AS c (
            kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, turn
        )
        SELECT kind, tenant, part, waiting, scheduled, enqueued, processing, retrying, completed,
            failed, canceled, bytes, blocked, nextval('holdfast.turns') FROM wrong
        ON CONFLICT (kind, tenant, part) DO UPDATE SET
            waiting = c.waiting + excluded.waiting, scheduled = c.scheduled + excluded.scheduled,
            enqueued = c.enqueued + excluded.enqueued,
            processing = c.processing + excluded.processing,
            retrying = c.retrying + excluded.retrying,
            completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
            canceled = c.canceled + excluded.canceled, bytes = c.bytes + excluded.bytes,
            blocked = c.blocked + excluded.blocked
    ), touched AS (
        INSERT INTO holdfast.deltas (tenant)
        SELECT DISTINCT w.tenant FROM wrong w JOIN holdfast.ruled r ON r.tenant = w.tenant
    )
    SELECT coalesce(sum(abs(processing)) FILTER (WHERE kind = 'queue'), 0)::bigint FROM wrong
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
                    WHERE p.queue = u.queue AND p.tenant = u.tenant
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

-- Jobs that wait or run, and those that ended well or were canceled while their record is kept. An
-- INSERT is an enqueue: tenant, job_type and payload are all it needs.
CREATE OR REPLACE VIEW holdfast.queue_jobs AS
SELECT j.tenant, j.id, j.queue, j.type AS job_type, holdfast.as_json(j.codec, j.payload) AS payload,
    CASE j.state WHEN 'processing' THEN 'processing' ELSE 'pending' END AS status, j.state,
    j.priority, j.attempt AS attempts, j.max_attempts, j.key AS idempotency_key, j.group_name,
    holdfast.to_time(j.run_at) AS run_at,
    CASE WHEN j.state = 'processing' THEN holdfast.to_time(j.updated_at) END AS heartbeat_at,
    j.worker, j.error AS last_error, holdfast.to_time(j.created_at) AS created_at,
    NULL::timestamptz AS finished_at
FROM holdfast.living j
UNION ALL
SELECT h.tenant, h.id, h.queue, h.type, holdfast.as_json(h.codec, h.payload), h.state, h.state,
    h.priority, h.attempt, h.max_attempts, h.key, h.group_name, holdfast.to_time(h.run_at), NULL,
    NULL, h.error, holdfast.to_time(h.created_at), holdfast.to_time(h.finished_at)
FROM holdfast.history h WHERE h.state <> 'failed';

-- == claim ==

-- The first jobs of a line of a tenant without settings: those in rows, and how many of which
-- packs. All of a pack stands at one place of the order, since no other job has a seq between its
-- first and its last.
CREATE FUNCTION holdfast.pick_front(
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
            WHERE p.queue = line.queue AND p.tenant = line.tenant
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
DROP FUNCTION holdfast.pick_line(holdfast.line, bigint, text[], bigint);

-- As `take`, for so many jobs from the front of each of these packs, which are of the lines with
-- these places: they come into `jobs` as they are leased. The line's turn is `take`'s to note,
-- unless what is left of it is given.
CREATE FUNCTION holdfast.take_packed(
    of_packs bigint[], numbers integer[], visits integer[], credit_left bigint,
    for_worker text, nonce text, lease_us bigint, now bigint, events boolean
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT u.visit, u.wanted, p.seq + p.taken AS head, p.seq, p.rank, p.at, p.keep_us,
            p.version, p.max_attempts, p.tenant, p.queue, p.type, p.codec, p.rules,
            p.ids[p.taken + 1:p.taken + u.wanted] AS ids,
            p.payloads[p.taken + 1:p.taken + u.wanted] AS payloads
        FROM unnest(of_packs, numbers, visits) AS u(pack, wanted, visit)
        CROSS JOIN LATERAL (SELECT * FROM holdfast.packs x WHERE x.seq = u.pack LIMIT 1) p
    ), taken AS (
        INSERT INTO holdfast.jobs (
            seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
            created_at, updated_at, max_attempts, keep_us, size, attempt, fence, token, lease_until,
            worker
        )
        SELECT c.head + u.n - 1, c.tenant, u.id, c.queue, c.type, c.codec, c.version,
            u.payload, c.rules, -c.rank, c.at, 'processing', c.at, now, c.max_attempts, c.keep_us,
            coalesce(octet_length(u.payload), 0), 1, 1, nonce || '.' || c.head + u.n - 1,
            now + lease_us, for_worker
        FROM chosen c
        CROSS JOIN LATERAL unnest(c.ids, c.payloads) WITH ORDINALITY AS u(id, payload, n)
        RETURNING seq, id, payload
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT now + lease_us, c.max_attempts <= 1, array_agg(c.head + n - 1)
        FROM chosen c CROSS JOIN LATERAL generate_series(1, c.wanted) n GROUP BY c.max_attempts <= 1
    ), noted AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'leased', t.tenant, t.id, t.queue, t.type, 1, 1,
            now + lease_us, for_worker
        FROM (
            SELECT c.tenant, x.id, c.queue, c.type
            FROM taken x JOIN chosen c ON c.seq = x.seq & -128
            ORDER BY c.visit, c.rank, x.seq
        ) t WHERE events
    ), told AS (
        INSERT INTO holdfast.deltas (tenant, queue, enqueued, processing, served, credit, held)
        SELECT c.tenant, c.queue, -sum(c.wanted), sum(c.wanted), coalesce(credit_left = 0, false),
            credit_left, now + lease_us
        FROM chosen c GROUP BY c.tenant, c.queue
    )
    SELECT c.visit, c.tenant, t.id, c.queue, c.type, c.codec, c.version, t.payload, c.rules,
        -c.rank, NULL::text, NULL::text, NULL::text[], NULL::text, t.seq, 1, 1, 0, 0, c.at, now, c.at,
        NULL::bigint, now + lease_us, NULL::text, NULL::text
    FROM taken t JOIN chosen c ON c.seq = t.seq & -128;
    -- Each by itself: nearly always there is one, and a part of it is left.
    FOR i IN 1..cardinality(of_packs) LOOP
        UPDATE holdfast.packs p SET taken = p.taken + numbers[i]
        WHERE p.seq = of_packs[i] AND p.taken + numbers[i] < p.number;
        IF NOT FOUND THEN
            DELETE FROM holdfast.packs p WHERE p.seq = of_packs[i];
        END IF;
    END LOOP;
END
$$;

-- Leases up to so many jobs. A row without a seq says that sleepers must look again.
CREATE OR REPLACE FUNCTION holdfast.claim(
    for_worker text, nonce text, most integer, lease_us bigint, in_tenants text[],
    in_queues text[], excluded text[], given_now bigint, probe boolean, events boolean,
    channel text, repair_most integer, repair_passes integer, lines_per_claim integer
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql
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
        RETURN NEXT NULL::holdfast.lease;
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
                RETURN QUERY SELECT * FROM holdfast.take_line(
                    pick.seqs, visit + 1, line.tenant, line.queue, before,
                    for_worker, nonce, lease_us, now, events
                );
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
                    AND (p.rank, p.seq) >= (u.low_rank, u.low_seq & -128)
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
        RETURN QUERY SELECT * FROM holdfast.take(
            seqs, visit, tenants, queues,
            -- A turn that a full claim cut short goes on with the next.
            ARRAY(
                SELECT CASE WHEN gave[i] = left_at[i] AND gave[i] < allowed[i]
                    THEN allowed[i] - gave[i] ELSE 0 END FROM generate_series(1, n) i ORDER BY i
            ),
            for_worker, nonce, lease_us, now, events
        );
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
