-- What an enqueue checks for jobs with keys, and of tenants with caps or too many queues or groups.

-- Decides what only some calls need: whether ids are known, keys taken, tenants at a cap or full.
-- In that order, so that a known job is found however full its tenant is. Takes the keys of the
-- jobs that it does not refuse. Jobs that the call names twice get the answer of the first.
CREATE OR REPLACE FUNCTION holdfast.check_jobs(
    tenants text[], ids text[], queues text[], types text[], payloads bytea[], keys text[],
    key_lengths bigint[], groups text[], capped boolean, are_full boolean, ids_unseen boolean,
    keys_unseen boolean, now bigint, edge_bytes integer[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
DECLARE
    firsts integer[] := ARRAY(
        SELECT min(u.ord)::integer FROM unnest(tenants, ids) WITH ORDINALITY AS u(tenant, id, ord)
        GROUP BY u.tenant, u.id
    );
    ended boolean := NOT ids_unseen AND holdfast.ended_ids_in_range(tenants, ids);
    answers holdfast.answer[];
    more holdfast.answer[];
BEGIN
    IF capped THEN
        PERFORM holdfast.lock_caps(tenants);
    END IF;
    answers := ARRAY(
        SELECT holdfast.existing_answer(u.ord::integer, u.id, u.queue, u.type, e.queue, e.type)
        FROM unnest(tenants, ids, queues, types) WITH ORDINALITY AS u(tenant, id, queue, type, ord)
        CROSS JOIN LATERAL (
            SELECT j.queue, j.type FROM holdfast.jobs j
            WHERE j.tenant = u.tenant AND j.id = u.id
            UNION ALL
            SELECT h.queue, h.type FROM holdfast.history h
            WHERE ended AND h.tenant = u.tenant AND h.id = u.id LIMIT 1
        ) e
    );
    firsts := holdfast.without(firsts, answers);
    IF are_full THEN
        answers := answers || holdfast.refuse_new_names(tenants, ids, queues, groups, firsts);
        firsts := holdfast.without(firsts, answers);
    END IF;
    IF keys IS NOT NULL THEN
        answers := answers || holdfast.take_keys(
            tenants, ids, queues, types, keys, key_lengths, keys_unseen, firsts, now
        );
        firsts := holdfast.without(firsts, answers);
    END IF;
    IF capped THEN
        more := holdfast.apply_caps(tenants, ids, payloads, firsts, edge_bytes);
        IF keys IS NOT NULL AND more <> '{}' THEN
            answers := holdfast.return_keys(tenants, ids, queues, types, keys, answers, more);
        END IF;
        answers := answers || more;
    END IF;
    RETURN answers || ARRAY(
        SELECT ROW(u.ord, a.why, a.id, a.queue, a.type, a.has, a.most)::holdfast.answer
        FROM (
            SELECT x.ord::integer AS ord,
                min(x.ord) OVER (PARTITION BY x.tenant, x.id)::integer AS first
            FROM unnest(tenants, ids) WITH ORDINALITY AS x(tenant, id, ord)
        ) u
        JOIN unnest(answers) a ON a.ord = u.first
        WHERE u.ord NOT IN (SELECT x.ord FROM unnest(answers) x)
    );
END
$$;

-- The places that these answers do not name.
CREATE OR REPLACE FUNCTION holdfast.without(places integer[], answers holdfast.answer[])
RETURNS integer[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF answers = '{}' THEN
        RETURN places;
    END IF;
    RETURN ARRAY(SELECT unnest(places) EXCEPT SELECT a.ord FROM unnest(answers) a);
END
$$;

-- Takes the idempotency keys of these jobs; returns the answers for those whose keys other jobs
-- hold. Of jobs with the same key the first of the call takes it.
CREATE OR REPLACE FUNCTION holdfast.take_keys(
    tenants text[], ids text[], queues text[], types text[], keys text[], key_lengths bigint[],
    unseen boolean, places integer[], now bigint
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
DECLARE
    answers holdfast.answer[] := '{}';
    -- In the order of keys, so that two calls never wait for each other.
    wanted integer[] := ARRAY(
        SELECT min(p) FROM unnest(places) p WHERE keys[p] IS NOT NULL
        GROUP BY tenants[p], queues[p], types[p], keys[p]
        ORDER BY tenants[p] COLLATE "C", queues[p] COLLATE "C", types[p] COLLATE "C",
            keys[p] COLLATE "C"
    );
    number bigint;
BEGIN
    WHILE wanted <> '{}' LOOP
        IF NOT unseen THEN
            answers := answers
                || holdfast.look_up_keys(tenants, queues, types, keys, wanted, now);
            wanted := holdfast.without(wanted, answers);
        END IF;
        INSERT INTO holdfast.keys
        SELECT tenants[p], queues[p], types[p], keys[p], ids[p], now + key_lengths[p]
        FROM unnest(wanted) p ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS number = ROW_COUNT;
        EXIT WHEN number = cardinality(wanted);
        -- Somebody has taken some of them in between, and has committed: look them up.
        wanted := ARRAY(
            SELECT p FROM unnest(wanted) WITH ORDINALITY AS u(p, place) CROSS JOIN LATERAL (
                SELECT FROM holdfast.keys k
                WHERE k.tenant = tenants[p] AND k.queue = queues[p] AND k.type = types[p]
                    AND k.key = keys[p] AND k.id <> ids[p] LIMIT 1
            ) taken ORDER BY u.place
        );
        unseen := false;
    END LOOP;
    RETURN answers || ARRAY(
        SELECT ROW(u.p, 'known', coalesce(a.id, ids[u.first]), NULL, NULL, NULL,
            NULL)::holdfast.answer
        FROM (
            SELECT p, min(p) OVER (PARTITION BY tenants[p], queues[p], types[p], keys[p]) AS first
            FROM unnest(places) p WHERE keys[p] IS NOT NULL
        ) u LEFT JOIN unnest(answers) a ON a.ord = u.first
        WHERE u.p > u.first
    );
END
$$;

-- The answers for jobs whose keys are held. Deletes keys that nobody holds any more. Locks the keys
-- in the order of the places. Each key is looked up by itself: a join could read all keys of all
-- tenants.
CREATE OR REPLACE FUNCTION holdfast.look_up_keys(
    tenants text[], queues text[], types text[], keys text[], places integer[], now bigint
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
DECLARE
    answers holdfast.answer[];
BEGIN
    PERFORM FROM unnest(places) p CROSS JOIN LATERAL (
        SELECT FROM holdfast.keys k
        WHERE k.tenant = tenants[p] AND k.queue = queues[p] AND k.type = types[p]
            AND k.key = keys[p] FOR UPDATE
    ) held;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    -- A new statement, which sees the jobs of those that we waited for.
    WITH found AS MATERIALIZED (
        -- The id may have been pruned and used again, for a job without this key.
        SELECT p, k.id, k.ctid, coalesce(k.until > now, false) OR coalesce((
            SELECT true FROM holdfast.jobs j
            WHERE j.tenant = k.tenant AND j.id = k.id AND j.queue = k.queue
                AND j.type = k.type AND j.key = k.key LIMIT 1
        ), false) AS holds
        FROM unnest(places) p CROSS JOIN LATERAL (
            SELECT x.*, x.ctid FROM holdfast.keys x
            WHERE x.tenant = tenants[p] AND x.queue = queues[p] AND x.type = types[p]
                AND x.key = keys[p] LIMIT 1
        ) k
    ), gone AS (
        DELETE FROM holdfast.keys k
        WHERE k.ctid = ANY (ARRAY(SELECT f.ctid FROM found f WHERE NOT f.holds))
    )
    SELECT array_agg(ROW(f.p, 'known', f.id, NULL, NULL, NULL, NULL)::holdfast.answer)
    INTO answers FROM found f WHERE f.holds;
    RETURN coalesce(answers, '{}');
END
$$;

-- Lets one call at a time count and fill a tenant with a cap.
CREATE OR REPLACE FUNCTION holdfast.lock_caps(tenants text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast.caps/' || s.tenant, 0)) FROM (
        SELECT x.tenant FROM holdfast.settings_of_tenants(tenants) x
        WHERE x.max_queued IS NOT NULL OR x.max_bytes IS NOT NULL
    ) s;
END
$$;

-- The answers for those of these jobs that do not fit under the caps of their tenants, which fill
-- up in the order of the call. The caller has called lock_caps.
CREATE OR REPLACE FUNCTION holdfast.apply_caps(
    tenants text[], ids text[], payloads bytea[], places integer[], edge_bytes integer[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
DECLARE
    cap record;
    place integer;
    size bigint;
    answers holdfast.answer[] := '{}';
BEGIN
    FOR cap IN
        SELECT s.tenant, s.max_queued, s.max_bytes, c.alive AS jobs, c.bytes
        FROM holdfast.settings_of_tenants(tenants) s
        CROSS JOIN LATERAL holdfast.scope_counts('tenant', s.tenant, '') c
        WHERE s.max_queued IS NOT NULL OR s.max_bytes IS NOT NULL
    LOOP
        FOR place IN SELECT p FROM unnest(places) p WHERE tenants[p] = cap.tenant ORDER BY p LOOP
            size := coalesce(octet_length(payloads[place]), 0) + coalesce(edge_bytes[place], 0);
            IF cap.jobs + 1 > cap.max_queued THEN
                answers := answers || ROW(
                    place, 'full', ids[place], 'jobs', NULL, cap.jobs, cap.max_queued
                )::holdfast.answer;
            ELSIF cap.bytes + size > cap.max_bytes THEN
                answers := answers || ROW(
                    place, 'full', ids[place], 'bytes', NULL, cap.bytes, cap.max_bytes
                )::holdfast.answer;
            ELSE
                cap.jobs := cap.jobs + 1;
                cap.bytes := cap.bytes + size;
            END IF;
        END LOOP;
    END LOOP;
    RETURN answers;
END
$$;

-- Gives back the keys of jobs that a cap refused, and lets jobs of the call that were answered with
-- such a job share its refusal. Returns the corrected answers.
CREATE OR REPLACE FUNCTION holdfast.return_keys(
    tenants text[], ids text[], queues text[], types text[], keys text[],
    answers holdfast.answer[], refusals holdfast.answer[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM holdfast.keys k WHERE k.ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest(refusals) r CROSS JOIN LATERAL (
            SELECT x.ctid FROM holdfast.keys x
            WHERE x.tenant = tenants[r.ord] AND x.queue = queues[r.ord] AND x.type = types[r.ord]
                AND x.key = keys[r.ord] AND x.id = ids[r.ord] LIMIT 1
        ) found
    ));
    RETURN ARRAY(
        SELECT CASE WHEN r.ord IS NULL THEN a ELSE ROW(
            a.ord, r.why, ids[a.ord], r.queue, r.type, r.has, r.most
        )::holdfast.answer END
        FROM unnest(answers) a LEFT JOIN unnest(refusals) r
            ON a.why = 'known' AND a.id = r.id AND tenants[a.ord] = tenants[r.ord]
            AND keys[a.ord] = keys[r.ord]
    );
END
$$;

-- The answers for those of these jobs that would give a full tenant another queue or group.
CREATE OR REPLACE FUNCTION holdfast.refuse_new_names(
    tenants text[], ids text[], queues text[], groups text[], places integer[]
) RETURNS holdfast.answer[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(
            p, 'many', ids[p], f.what, NULL, NULL,
            CASE f.what WHEN 'queues' THEN c.most_queues ELSE c.most_groups END
        )::holdfast.answer
        FROM unnest(places) p
        JOIN (
            SELECT t.tenant, t.queues AS most_queues, t.groups AS most_groups
            FROM holdfast.full_tenants t
        ) c ON c.tenant = tenants[p]
        CROSS JOIN LATERAL (
            SELECT 'queues' AS what WHERE c.most_queues IS NOT NULL
                AND NOT holdfast.is_counted('queue', tenants[p], queues[p])
            UNION ALL
            SELECT 'groups' WHERE c.most_groups IS NOT NULL AND groups[p] IS NOT NULL
                AND NOT holdfast.is_counted('group', tenants[p], groups[p])
            LIMIT 1
        ) f
    );
END
$$;

-- True when a queue or group has jobs, as far as counts and deltas know.
CREATE OR REPLACE FUNCTION holdfast.is_counted(of_kind text, of_tenant text, of_part text)
RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM holdfast.counts c
        WHERE c.kind = of_kind AND c.tenant = of_tenant AND c.part = of_part
    ) OR EXISTS (
        SELECT FROM holdfast.deltas d
        WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state) AND d.tenant = of_tenant
            AND CASE of_kind WHEN 'queue' THEN d.queue ELSE d.group_name END = of_part
    );
END
$$;
