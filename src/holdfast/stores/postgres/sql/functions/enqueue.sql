-- Enqueue. May run in anybody's transaction: nothing here waits for a claim.

-- Stores jobs, given as arrays with one element for each job; NULL for an array that has no value
-- for any job. Returns a row for each job that was not created, with the reason. `ids_unseen`: the
-- caller has generated all ids for this call, so the history is not searched for them.
-- `keys_unseen`: the caller believes that nobody has taken these keys, so they are inserted without
-- a look-up before; it may be wrong. `flow`: what jobs with edges or parents have beyond that.
CREATE OR REPLACE FUNCTION holdfast.enqueue(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    ids_unseen boolean DEFAULT false, keys_unseen boolean DEFAULT false, flow jsonb DEFAULT NULL
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
    settings record;
    answers holdfast.answer[];
    refused integer[];
    made bigint[];
    ended bigint[];
BEGIN
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
    SELECT coalesce(array_agg(s.tenant) FILTER (WHERE s.grouped), '{}') AS grouped,
        count(s.max_queued) + count(s.max_bytes) > 0 AS capped,
        EXISTS (SELECT FROM holdfast.full_tenants f WHERE f.tenant = ANY (tenants)) AS are_full,
        EXISTS (SELECT FROM holdfast.tiers) AS tiered
    INTO settings FROM holdfast.tenants_with_settings s WHERE s.tenant = ANY (tenants);
    IF settings.tiered THEN
        SELECT s.grouped, s.capped INTO settings.grouped, settings.capped
        FROM holdfast.sum_settings(tenants) s;
    END IF;
    IF keys IS NOT NULL OR settings.capped OR settings.are_full THEN
        answers := holdfast.check_jobs(
            tenants, ids, queues, types, payloads, keys, key_lengths, groups, settings.capped,
            settings.are_full, ids_unseen, keys_unseen, now, flow
        );
        refused := ARRAY(SELECT a.ord FROM unnest(answers) a);
        RETURN QUERY SELECT * FROM unnest(answers);
    END IF;
    made := holdfast.insert_jobs(
        tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, delays,
        run_at_givens, ttls, keys, groups, tags, origins, attempts, keeps,
        coalesce(refused, '{}'), settings.grouped, now, events, flow
    );
    -- After the insert: a job of this id that ended just now is in the history by now.
    IF NOT ids_unseen AND holdfast.ended_ids_in_range(tenants, ids) THEN
        ended := holdfast.undo_enqueue(made);
    END IF;
    IF flow IS NOT NULL THEN
        PERFORM holdfast.insert_flow(flow, tenants, ids, made, now);
    END IF;
    IF coalesce(cardinality(made), 0) < cardinality(ids) OR ended <> '{}' THEN
        RETURN QUERY
        SELECT a.* FROM unnest(holdfast.existing_jobs(
            tenants, ids, queues, types, coalesce(refused, '{}'), made
        )) a;
    END IF;
END
$$;

-- Inserts all jobs except the refused ones, with what counts must add, and their events. Returns
-- the seqs of those that were inserted.
-- One statement, since most of the time of a small call goes into starting statements.
CREATE OR REPLACE FUNCTION holdfast.insert_jobs(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], groups text[], tags text[], origins text[], attempts integer[],
    keeps bigint[], refused integer[], grouped text[], now bigint, events boolean, flow jsonb
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    made bigint[];
    -- By the place of a job; NULL where none has parents or edges.
    parents integer[] := holdfast.flow_numbers(flow, 'parents', cardinality(ids));
    ends integer[] := holdfast.flow_numbers(flow, 'ends', cardinality(ids));
    edges integer[] := holdfast.flow_numbers(flow, 'number', cardinality(ids));
    sizes integer[] := holdfast.flow_numbers(flow, 'bytes', cardinality(ids));
BEGIN
    PERFORM holdfast.announce();
    WITH new AS (
        INSERT INTO holdfast.jobs (
            seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at,
            state, created_at, updated_at, expires_at, key, group_name, tags, origin,
            max_attempts, keep_us, size, gate, awaits, journal, edges
        )
        SELECT u.seq, u.tenant, u.id, u.queue, u.type, coalesce(u.codec, 'json'),
            coalesce(u.version, 1), u.payload, u.rules, coalesce(u.priority, 0), u.run_at,
            CASE WHEN u.parents > 0 THEN 'waiting'
                WHEN u.run_at > now THEN 'scheduled' ELSE 'enqueued' END, now, now,
            now + u.ttl, u.key, u.group_name, string_to_array(u.tags, E'\x1f'), u.origin,
            u.attempts, u.keep_us, coalesce(octet_length(u.payload), 0) + coalesce(u.size, 0),
            CASE WHEN u.parents > 0 THEN 4 WHEN u.run_at > now THEN 2
                WHEN u.group_name IS NOT NULL AND u.tenant = ANY (grouped) THEN 1 ELSE 0 END,
            CASE WHEN u.ends > 0 THEN 'parents:' WHEN u.parents > 0 THEN 'join:' END, CASE
                WHEN u.parents > 0 THEN '[1,0,' || length(u.parents::text) || ',0]' END, u.edges
        FROM (
            -- Sequences are drawn in the order of the call.
            SELECT nextval('holdfast.seqs') AS seq, x.*,
                coalesce(x.run_at_given, now + coalesce(x.delay, 0)) AS run_at
            FROM unnest(
                tenants, ids, queues, types, codecs, versions, payloads, rules, priorities,
                delays, run_at_givens, ttls, keys, groups, tags, origins, attempts, keeps,
                parents, ends, edges, sizes
            ) WITH ORDINALITY AS x(
                tenant, id, queue, type, codec, version, payload, rules, priority, delay,
                run_at_given, ttl, key, group_name, tags, origin, attempts, keep_us, parents,
                ends, edges, size, ord
            ) WHERE NOT x.ord = ANY (refused)
        ) u
        -- In one order, so that two calls with the same ids never wait for each other.
        ORDER BY u.tenant COLLATE "C", u.id COLLATE "C", u.seq
        ON CONFLICT (tenant, id) DO NOTHING
        RETURNING seq, priority, run_at, gate, tenant, id, queue, type, group_name, size
    ), counted AS (
        INSERT INTO holdfast.deltas (
            tenant, queue, group_name, waiting, scheduled, enqueued, blocked, bytes, head_rank,
            head_seq, due
        )
        SELECT n.tenant, n.queue, n.group_name, count(*) FILTER (WHERE n.gate = 4),
            count(*) FILTER (WHERE n.gate = 2), count(*) FILTER (WHERE n.gate < 2),
            count(*) FILTER (WHERE n.gate = 1), sum(n.size),
            min(-n.priority) FILTER (WHERE n.gate = 0), min(n.seq) FILTER (WHERE n.gate = 0),
            min(n.run_at) FILTER (WHERE n.gate = 2)
        FROM new n GROUP BY n.tenant, n.queue, n.group_name ORDER BY min(n.seq)
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', n.tenant, n.id, n.queue, n.type, 0,
            0, CASE WHEN n.run_at > now THEN n.run_at END
        FROM (SELECT * FROM new ORDER BY new.seq) n WHERE events
    )
    SELECT array_agg(new.seq) INTO made FROM new;
    RETURN made;
END
$$;

-- True when an ended job of these tenants has an id between the lowest and the highest of these.
-- One look-up in each part of the history instead of one for each job: generated ids grow with
-- time, so there is hardly ever an ended job between those of one call.
CREATE OR REPLACE FUNCTION holdfast.ended_ids_in_range(tenants text[], ids text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM (
            SELECT u.tenant, min(u.id COLLATE "C") AS low, max(u.id COLLATE "C") AS high
            FROM unnest(tenants, ids) AS u(tenant, id) GROUP BY u.tenant
        ) asked
        JOIN holdfast.history h ON h.tenant = asked.tenant AND h.id BETWEEN asked.low AND asked.high
    );
END
$$;

-- Removes those of these new jobs whose ids ended jobs have; returns their seqs. Called by the
-- transaction that inserted them.
CREATE OR REPLACE FUNCTION holdfast.undo_enqueue(made bigint[]) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ended bigint[] := ARRAY(
        SELECT j.seq FROM holdfast.jobs j WHERE j.seq = ANY (made) AND EXISTS (
            SELECT FROM holdfast.history h WHERE h.tenant = j.tenant AND h.id = j.id
        )
    );
BEGIN
    IF ended = '{}' THEN
        RETURN ended;
    END IF;
    WITH gone AS (
        DELETE FROM holdfast.jobs j WHERE j.seq = ANY (ended) RETURNING j.*
    ), unrecorded AS (
        -- The last event of such an id is ours: those of the ended job were recorded before.
        DELETE FROM holdfast.events e USING gone g
        WHERE e.tenant = g.tenant AND e.job_id = g.id AND e.kind = 'enqueued' AND e.cursor = (
            SELECT max(x.cursor) FROM holdfast.events x
            WHERE x.tenant = g.tenant AND x.job_id = g.id
        )
    )
    INSERT INTO holdfast.deltas (
        tenant, queue, group_name, waiting, scheduled, enqueued, blocked, bytes
    )
    SELECT g.tenant, g.queue, g.group_name, -count(*) FILTER (WHERE g.gate = 4),
        -count(*) FILTER (WHERE g.gate = 2), -count(*) FILTER (WHERE g.gate < 2),
        -count(*) FILTER (WHERE g.gate = 1), -sum(g.size)
    FROM gone g GROUP BY g.tenant, g.queue, g.group_name;
    RETURN ended;
END
$$;

-- The answers for jobs whose ids were there already, or are named twice by the call. Of one id the
-- first job is created.
CREATE OR REPLACE FUNCTION holdfast.existing_jobs(
    tenants text[], ids text[], queues text[], types text[], refused integer[], made bigint[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT holdfast.existing_answer(u.ord::integer, u.id, u.queue, u.type, e.queue, e.type)
        FROM (
            SELECT x.*, row_number() OVER (PARTITION BY x.tenant, x.id ORDER BY x.ord) AS place
            FROM unnest(tenants, ids, queues, types) WITH ORDINALITY
                AS x(tenant, id, queue, type, ord)
            WHERE NOT x.ord = ANY (refused)
        ) u
        -- Without a row it was there when the insert met it, and is gone by now.
        LEFT JOIN LATERAL (
            SELECT j.seq, j.queue, j.type FROM holdfast.jobs j
            WHERE j.tenant = u.tenant AND j.id = u.id
            UNION ALL
            SELECT h.seq, h.queue, h.type FROM holdfast.history h
            WHERE h.tenant = u.tenant AND h.id = u.id LIMIT 1
        ) e ON true
        WHERE u.place > 1 OR NOT coalesce(e.seq = ANY (made), false)
    );
END
$$;

-- The answer for an id that exists already: 'conflict' if it is a job of another queue or type.
CREATE OR REPLACE FUNCTION holdfast.existing_answer(
    ord integer, id text, queue text, type text, its_queue text, its_type text
) RETURNS holdfast.answer LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(
        ord, CASE WHEN its_queue <> queue OR its_type <> type THEN 'conflict' ELSE 'known' END, id,
        its_queue, its_type, NULL, NULL
    )::holdfast.answer
$$;
