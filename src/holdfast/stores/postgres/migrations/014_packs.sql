-- Jobs that are alike wait in packs; layout.py says why. What a pack is, how one is read, and all
-- that need not know of pieces; the rest is where those are (015).

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

-- == enqueue ==

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

-- What does it all with care knows nothing of packs; `enqueue` (015) does.
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

DROP FUNCTION holdfast.pick_line(holdfast.line, bigint, text[], bigint);
