-- How jobs come in. May run in anybody's transaction: nothing here waits for a claim.

-- What was not made, and why: known (by id or key), conflict (the id is another job's), full.
CREATE TYPE holdfast.answer AS (
    ord integer, why text, id text, queue text, type text, has bigint, most bigint
);

-- One job after the other: those with keys, and of tenants with a cap. Gives the seqs of those that
-- were made, NULL for others.
CREATE FUNCTION holdfast.enqueue_each(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], run_ats bigint[], expires bigint[],
    keys text[], key_untils bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], grouped text[], seqs bigint[], now bigint,
    OUT made bigint[], OUT answers holdfast.answer[]
) LANGUAGE plpgsql AS $$
DECLARE
    capped holdfast.ruled[];
    cap holdfast.ruled;
    usage jsonb := '{}';
    tenant text;
    i integer;
    earlier record;
    holder record;
    has record;
    size bigint;
    gate smallint;
    ended boolean;
BEGIN
    made := array_fill(NULL::bigint, ARRAY[cardinality(ids)]);
    answers := '{}';
    FOR cap IN
        SELECT * FROM holdfast.ruled r WHERE r.tenant = ANY (tenants)
            AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL) ORDER BY r.tenant
    LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.caps/' || cap.tenant, 0));
    END LOOP;
    -- After the lock, for the cap may have changed while we waited.
    capped := ARRAY(
        SELECT r FROM holdfast.ruled r WHERE r.tenant = ANY (tenants)
            AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL)
    );
    FOREACH cap IN ARRAY capped LOOP
        SELECT * INTO has FROM holdfast.tally('tenant', cap.tenant, '');
        usage := usage || jsonb_build_object(
            cap.tenant, jsonb_build_object(
                'jobs', has.alive, 'bytes', has.bytes,
                'most_jobs', cap.max_queued, 'most_bytes', cap.max_bytes
            )
        );
    END LOOP;
    ended := holdfast.ended_between(tenants, ids);
    -- In the order of keys, so that two calls never wait for each other; a tenant with a cap has a
    -- lock of its own, and fills up in the order of the call.
    FOR i IN
        SELECT u.ord FROM unnest(tenants, queues, types, keys) WITH ORDINALITY
            AS u(tenant, queue, type, key, ord)
        ORDER BY u.tenant COLLATE "C", CASE WHEN usage ? u.tenant THEN u.ord END,
            u.queue COLLATE "C", u.type COLLATE "C", u.key COLLATE "C", u.ord
    LOOP
        tenant := tenants[i];
        size := coalesce(octet_length(payloads[i]), 0);
        SELECT j.queue, j.type INTO earlier FROM holdfast.jobs j
        WHERE j.tenant = tenants[i] AND j.id = ids[i];
        IF NOT FOUND AND ended THEN
            SELECT h.queue, h.type INTO earlier FROM holdfast.history h
            WHERE h.tenant = tenants[i] AND h.id = ids[i] LIMIT 1;
        END IF;
        IF FOUND THEN
            answers := answers || holdfast.earlier(
                i, ids[i], queues[i], types[i], earlier.queue, earlier.type
            );
            CONTINUE;
        END IF;
        IF keys[i] IS NOT NULL THEN
            holder := holdfast.key_holder(tenant, queues[i], types[i], keys[i], now);
            IF holder.id IS NOT NULL AND holder.holds THEN
                answers := answers
                    || ROW(i, 'known', holder.id, NULL, NULL, NULL, NULL)::holdfast.answer;
                CONTINUE;
            END IF;
        END IF;
        IF usage ? tenant THEN
            SELECT c.what, c.has, c.most INTO has FROM (VALUES
                (1, 'jobs', (usage #>> ARRAY[tenant, 'jobs'])::bigint, 1::bigint,
                    (usage #>> ARRAY[tenant, 'most_jobs'])::bigint),
                (2, 'bytes', (usage #>> ARRAY[tenant, 'bytes'])::bigint, size,
                    (usage #>> ARRAY[tenant, 'most_bytes'])::bigint)
            ) AS c(n, what, has, more, most) WHERE c.has + c.more > c.most ORDER BY c.n LIMIT 1;
            IF FOUND THEN
                answers := answers
                    || ROW(i, 'full', ids[i], has.what, NULL, has.has, has.most)::holdfast.answer;
                CONTINUE;
            END IF;
        END IF;
        IF keys[i] IS NOT NULL THEN
            INSERT INTO holdfast.keys AS k
            VALUES (tenant, queues[i], types[i], keys[i], ids[i], key_untils[i])
            ON CONFLICT ON CONSTRAINT keys_pkey
            DO UPDATE SET id = excluded.id, until = excluded.until WHERE k.id = holder.id;
            IF NOT FOUND THEN  -- Somebody took it in between, and has committed by now.
                holder := holdfast.key_holder(tenant, queues[i], types[i], keys[i], now);
                answers := answers
                    || ROW(i, 'known', holder.id, NULL, NULL, NULL, NULL)::holdfast.answer;
                CONTINUE;
            END IF;
        END IF;
        gate := CASE WHEN groups[i] IS NOT NULL AND run_ats[i] <= now AND tenant = ANY (grouped)
            THEN 1 ELSE 0 END;
        INSERT INTO holdfast.jobs (
            seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
            created_at, updated_at, expires_at, key, group_name, tags, origin, max_attempts,
            keep_us, size, gate
        ) VALUES (
            seqs[i], tenant, ids[i], queues[i], types[i], codecs[i], versions[i], payloads[i],
            rules[i], priorities[i], run_ats[i],
            CASE WHEN run_ats[i] > now THEN 'scheduled' ELSE 'enqueued' END, now, now, expires[i],
            keys[i], groups[i], string_to_array(tags[i], E'\x1f'), origins[i], attempts[i],
            keeps[i], size, gate
        ) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT j.queue, j.type INTO earlier FROM holdfast.jobs j
            WHERE j.tenant = tenants[i] AND j.id = ids[i];
            answers := answers || holdfast.earlier(
                i, ids[i], queues[i], types[i], earlier.queue, earlier.type
            );
            CONTINUE;
        END IF;
        made[i] := seqs[i];
        PERFORM holdfast.stand(ARRAY[seqs[i]]);
        IF usage ? tenant THEN
            usage := jsonb_set(usage, ARRAY[tenant, 'jobs'],
                to_jsonb((usage #>> ARRAY[tenant, 'jobs'])::bigint + 1));
            usage := jsonb_set(usage, ARRAY[tenant, 'bytes'],
                to_jsonb((usage #>> ARRAY[tenant, 'bytes'])::bigint + size));
        END IF;
    END LOOP;
    -- One that has ended since we asked: the caller tries again, and finds it.
    IF NOT ended AND holdfast.ended_between(tenants, ids) AND EXISTS (
        SELECT FROM unnest(tenants, ids, made) AS u(tenant, id, seq)
        JOIN holdfast.history h ON h.tenant = u.tenant AND h.id = u.id WHERE u.seq IS NOT NULL
    ) THEN
        RAISE SQLSTATE '40001' USING MESSAGE = 'a job of this id has just ended';
    END IF;
END
$$;

-- The answer for an id that is known already.
CREATE FUNCTION holdfast.earlier(
    ord integer, id text, queue text, type text, its_queue text, its_type text
) RETURNS holdfast.answer LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(
        ord, CASE WHEN its_queue <> queue OR its_type <> type THEN 'conflict' ELSE 'known' END, id,
        its_queue, its_type, NULL, NULL
    )::holdfast.answer
$$;

-- Which job took a key last, and whether it holds it still.
CREATE FUNCTION holdfast.key_holder(
    of_tenant text, of_queue text, of_type text, of_key text, now bigint, OUT id text,
    OUT holds boolean
) LANGUAGE plpgsql AS $$
DECLARE
    held_until bigint;
BEGIN
    SELECT k.id, k.until INTO id, held_until FROM holdfast.keys k
    WHERE k.tenant = of_tenant AND k.queue = of_queue AND k.type = of_type AND k.key = of_key
    FOR UPDATE;
    -- The id may have been pruned and used again, for a job without this key.
    holds := coalesce(held_until > now, false) OR EXISTS (
        SELECT FROM holdfast.jobs j
        WHERE j.tenant = of_tenant AND j.id = key_holder.id AND j.queue = of_queue
            AND j.type = of_type AND j.key = of_key
    );
END
$$;

-- All jobs at once, where the caller believes that nobody has taken any of their keys: no look-ups
-- before the inserts. Gives false, with nothing done, if there is anything to look up after all: a
-- key or an id that is known, or one that the call names twice. Undone as a subtransaction, so that
-- no lock of the attempt is left and the keys can be taken in their order once more.
CREATE FUNCTION holdfast.enqueue_fresh(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], run_ats bigint[], ttls bigint[],
    keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], grouped text[], seqs bigint[], now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    INSERT INTO holdfast.keys
    SELECT u.tenant, u.queue, u.type, u.key, u.id, now + u.length
    FROM unnest(tenants, queues, types, keys, ids, key_lengths)
        AS u(tenant, queue, type, key, id, length)
    WHERE u.key IS NOT NULL
    ORDER BY u.tenant COLLATE "C", u.queue COLLATE "C", u.type COLLATE "C", u.key COLLATE "C"
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS number = ROW_COUNT;
    IF number < cardinality(array_remove(keys, NULL)) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    INSERT INTO holdfast.jobs (
        seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
        created_at, updated_at, expires_at, key, group_name, tags, origin, max_attempts, keep_us,
        size, gate
    )
    SELECT u.seq, u.tenant, u.id, u.queue, u.type, u.codec, u.version, u.payload, u.rules,
        coalesce(u.priority, 0), u.run_at,
        CASE WHEN u.run_at > now THEN 'scheduled' ELSE 'enqueued' END, now, now, now + u.ttl, u.key,
        u.group_name, string_to_array(u.tags, E'\x1f'), u.origin, u.attempts, u.keep_us,
        coalesce(octet_length(u.payload), 0),
        CASE WHEN u.group_name IS NOT NULL AND u.run_at <= now AND u.tenant = ANY (grouped)
            THEN 1 ELSE 0 END
    FROM unnest(
        seqs, tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, run_ats,
        ttls, keys, groups, tags, origins, attempts, keeps
    ) AS u(
        seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, ttl, key,
        group_name, tags, origin, attempts, keep_us
    )
    ORDER BY u.tenant COLLATE "C", u.id COLLATE "C", u.seq
    ON CONFLICT (tenant, id) DO NOTHING;
    GET DIAGNOSTICS number = ROW_COUNT;
    -- After the insert: a job of this id that ended just now is in the history by now.
    IF number < cardinality(ids) OR holdfast.ended_between(tenants, ids) AND EXISTS (
        SELECT FROM unnest(tenants, ids) AS u(tenant, id)
        JOIN holdfast.history h ON h.tenant = u.tenant AND h.id = u.id
    ) THEN
        RAISE SQLSTATE 'HF001';
    END IF;
    PERFORM holdfast.stand(seqs);
    RETURN true;
EXCEPTION WHEN SQLSTATE 'HF001' THEN
    RETURN false;
END
$$;

-- Keeps the jobs. Arrays of one length, one place for each job (NULL: for none of them), and the
-- caller's instant or NULL. Gives a row for each that was not made. Fresh: the caller believes that
-- no key was taken; it may be wrong.
CREATE FUNCTION holdfast.enqueue(
    tenants text[], ids text[], queues text[], types text[], codecs text[], versions integer[],
    payloads bytea[], rules text[], priorities bigint[], delays bigint[], run_at_givens bigint[],
    ttls bigint[], keys text[], key_lengths bigint[], groups text[], tags text[], origins text[],
    attempts integer[], keeps bigint[], given_now bigint, events boolean, channel text, hint text,
    fresh boolean DEFAULT false
) RETURNS SETOF holdfast.answer LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    number integer := cardinality(ids);
    seqs bigint[] := ARRAY(SELECT nextval('holdfast.seqs') FROM generate_series(1, number));
    grouped text[];
    capped boolean;
    run_ats bigint[];
    made bigint[];
    again bigint[];
    each record;
    last_cursor bigint;
BEGIN
    run_ats := ARRAY(
        SELECT coalesce(u.given, now + coalesce(u.delay, 0))
        FROM unnest(run_at_givens, delays, seqs) WITH ORDINALITY AS u(given, delay, seq, ord)
        ORDER BY u.ord
    );
    SELECT coalesce(array_agg(r.tenant) FILTER (WHERE r.grouped), '{}'),
        count(r.max_queued) + count(r.max_bytes) > 0
    INTO grouped, capped FROM holdfast.ruled r WHERE r.tenant = ANY (tenants);
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
    IF keys IS NOT NULL OR capped THEN
        -- A tenant with a cap is counted before anything is inserted.
        IF fresh AND NOT capped AND holdfast.enqueue_fresh(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, run_ats,
            ttls, keys, key_lengths, groups, tags, origins, attempts, keeps, grouped, seqs, now
        ) THEN
            PERFORM holdfast.tell_new(
                tenants, ids, queues, types, groups, priorities, run_ats, payloads, grouped, seqs,
                now, events
            );
            RETURN;
        END IF;
        SELECT * INTO each FROM holdfast.enqueue_each(
            tenants, ids, queues, types, codecs, versions, payloads, rules, priorities, run_ats,
            ARRAY(SELECT now + t FROM unnest(ttls, ids) WITH ORDINALITY AS u(t, x, n) ORDER BY n),
            keys,
            ARRAY(
                SELECT now + t FROM unnest(key_lengths, ids) WITH ORDINALITY AS u(t, x, n)
                ORDER BY n
            ),
            groups, tags, origins, attempts, keeps, grouped, seqs, now
        );
        PERFORM holdfast.tell_new(
            tenants, ids, queues, types, groups, priorities, run_ats, payloads, grouped, each.made,
            now, events
        );
        RETURN QUERY SELECT * FROM unnest(each.answers);
    ELSE
        IF events THEN
            PERFORM holdfast.announce();
            SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO last_cursor
            FROM holdfast.cursors;
        END IF;
        -- All in one statement, for a single job most of the time is spent on starting statements.
        WITH new AS (
            INSERT INTO holdfast.jobs (
                seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at,
                state, created_at, updated_at, expires_at, group_name, tags, origin, max_attempts,
                keep_us, size, gate
            )
            SELECT u.seq, u.tenant, u.id, u.queue, u.type, u.codec, u.version, u.payload, u.rules,
                coalesce(u.priority, 0), u.run_at,
                CASE WHEN u.run_at > now THEN 'scheduled' ELSE 'enqueued' END, now, now,
                now + u.ttl, u.group_name, string_to_array(u.tags, E'\x1f'), u.origin, u.attempts,
                u.keep_us, coalesce(octet_length(u.payload), 0),
                CASE WHEN u.group_name IS NOT NULL AND u.run_at <= now AND u.tenant = ANY (grouped)
                    THEN 1 ELSE 0 END
            FROM unnest(
                seqs, tenants, ids, queues, types, codecs, versions, payloads, rules, priorities,
                run_ats, ttls, groups, tags, origins, attempts, keeps
            ) AS u(
                seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, ttl,
                group_name, tags, origin, attempts, keep_us
            )
            -- In one order, so that two calls with the same ids never wait for each other.
            ORDER BY u.tenant COLLATE "C", u.id COLLATE "C", u.seq
            ON CONFLICT (tenant, id) DO NOTHING
            RETURNING seq, priority, run_at, expires_at, gate, state, tenant, id, queue, type,
                group_name, size
        -- As `stand` would do, which had to read them again.
        ), stands AS (
            INSERT INTO holdfast.ready
            SELECT n.seq, -n.priority, n.run_at, n.expires_at, n.gate, n.tenant, n.queue,
                n.group_name FROM new n WHERE n.state = 'enqueued'
        ), comes_due AS (
            INSERT INTO holdfast.due SELECT n.seq, n.run_at FROM new n WHERE n.state = 'scheduled'
        ), told AS (
            INSERT INTO holdfast.deltas (
                tenant, queue, group_name, scheduled, enqueued, blocked, bytes, head_rank, head_seq,
                due
            )
            SELECT n.tenant, n.queue, n.group_name, count(*) FILTER (WHERE n.state = 'scheduled'),
                count(*) FILTER (WHERE n.state = 'enqueued'), sum(n.gate), sum(n.size),
                min(-n.priority) FILTER (WHERE n.state = 'enqueued'),
                min(n.seq) FILTER (WHERE n.state = 'enqueued'),
                min(n.run_at) FILTER (WHERE n.state = 'scheduled')
            FROM new n GROUP BY n.tenant, n.queue, n.group_name ORDER BY min(n.seq)
        ), noted AS (
            INSERT INTO holdfast.events
            SELECT nextval('holdfast.cursors'), now, 'enqueued', n.tenant, n.id, n.queue, n.type, 0,
                0, CASE WHEN n.state = 'scheduled' THEN n.run_at END
            FROM (SELECT * FROM new ORDER BY new.seq) n WHERE events
        )
        SELECT array_agg(new.seq) INTO made FROM new;
        -- After the insert: a job of this id that ended just now is in the history by now.
        again := '{}';
        IF holdfast.ended_between(tenants, ids) THEN
            again := ARRAY(
                SELECT u.seq FROM unnest(tenants, ids, seqs) AS u(tenant, id, seq)
                WHERE EXISTS (
                    SELECT FROM holdfast.history h WHERE h.tenant = u.tenant AND h.id = u.id
                )
            );
        END IF;
        IF cardinality(again) > 0 THEN
            PERFORM holdfast.unmake(again, last_cursor);
        END IF;
        IF coalesce(cardinality(made), 0) < number OR cardinality(again) > 0 THEN
            made := ARRAY(
                SELECT m.seq FROM unnest(seqs) WITH ORDINALITY AS u(seq, ord)
                LEFT JOIN unnest(made) AS m(seq)
                    ON m.seq = u.seq AND NOT m.seq = ANY (again) ORDER BY u.ord
            );
            RETURN QUERY
            SELECT (holdfast.earlier(u.ord::integer, u.id, u.queue, u.type, e.queue, e.type)).*
            FROM unnest(ids, tenants, queues, types, made) WITH ORDINALITY
                AS u(id, tenant, queue, type, seq, ord)
            CROSS JOIN LATERAL (
                SELECT j.queue, j.type FROM holdfast.jobs j
                WHERE j.tenant = u.tenant AND j.id = u.id
                UNION ALL
                SELECT h.queue, h.type FROM holdfast.history h
                WHERE h.tenant = u.tenant AND h.id = u.id LIMIT 1
            ) e WHERE u.seq IS NULL;
        END IF;
    END IF;
END
$$;

-- Takes back what this very transaction has made, counted and recorded.
CREATE FUNCTION holdfast.unmake(of_seqs bigint[], last_cursor bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.jobs j WHERE j.seq = ANY (of_seqs) RETURNING j.*
    ), out_of_line AS (
        DELETE FROM holdfast.ready r WHERE r.seq = ANY (of_seqs)
    ), not_due AS (
        DELETE FROM holdfast.due d WHERE d.seq = ANY (of_seqs)
    ), unsaid AS (
        DELETE FROM holdfast.events e USING gone g
        WHERE e.tenant = g.tenant AND e.job_id = g.id AND e.cursor > last_cursor
    )
    INSERT INTO holdfast.deltas (tenant, queue, group_name, scheduled, enqueued, blocked, bytes)
    SELECT g.tenant, g.queue, g.group_name, -count(*) FILTER (WHERE g.state = 'scheduled'),
        -count(*) FILTER (WHERE g.state = 'enqueued'), -sum(g.gate), -sum(g.size)
    FROM gone g GROUP BY g.tenant, g.queue, g.group_name;
END
$$;

-- Counts and records new jobs that were not made all at once.
CREATE FUNCTION holdfast.tell_new(
    tenants text[], ids text[], queues text[], types text[], groups text[], priorities bigint[],
    run_ats bigint[], payloads bytea[], grouped text[], made bigint[], now bigint, events boolean
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.deltas
        (tenant, queue, group_name, scheduled, enqueued, blocked, bytes, head_rank, head_seq, due)
    SELECT u.tenant, u.queue, u.group_name, count(*) FILTER (WHERE u.run_at > now),
        count(*) FILTER (WHERE u.run_at <= now),
        count(*) FILTER (
            WHERE u.run_at <= now AND u.group_name IS NOT NULL AND u.tenant = ANY (grouped)
        ), sum(coalesce(octet_length(u.payload), 0)), min(-coalesce(u.priority, 0)) FILTER (WHERE u.run_at <= now),
        min(u.seq) FILTER (WHERE u.run_at <= now), min(u.run_at) FILTER (WHERE u.run_at > now)
    FROM unnest(tenants, queues, groups, priorities, run_ats, payloads, made)
        AS u(tenant, queue, group_name, priority, run_at, payload, seq)
    WHERE u.seq IS NOT NULL GROUP BY u.tenant, u.queue, u.group_name ORDER BY min(u.seq);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'enqueued', u.tenant, u.id, u.queue, u.type, 0, 0,
            CASE WHEN u.run_at > now THEN u.run_at END
        FROM unnest(tenants, ids, queues, types, run_ats, made)
            AS u(tenant, id, queue, type, run_at, seq)
        WHERE u.seq IS NOT NULL;
    END IF;
END
$$;
