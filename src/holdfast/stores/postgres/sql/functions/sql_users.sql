-- For callers that use SQL: enqueue on a connection of any driver, and what the views need.

-- `enqueue` for drivers that cannot pass arrays of bytes: one JSON document, with payloads in
-- base64.
CREATE OR REPLACE FUNCTION holdfast.enqueue_json(
    jobs jsonb, given_now bigint, events boolean, channel text, hint text
) RETURNS SETOF holdfast.answer LANGUAGE sql VOLATILE AS $$
    SELECT a.* FROM (
        SELECT
            array_agg(j.tenant ORDER BY n) AS tenants, array_agg(j.id ORDER BY n) AS ids,
            array_agg(j.queue ORDER BY n) AS queues, array_agg(j.type ORDER BY n) AS types,
            array_agg(j.codec ORDER BY n) AS codecs, array_agg(j.version ORDER BY n) AS versions,
            array_agg(decode(j.payload, 'base64') ORDER BY n) AS payloads,
            array_agg(j.rules ORDER BY n) AS rules, array_agg(j.priority ORDER BY n) AS priorities,
            array_agg(j.delay_us ORDER BY n) AS delays, array_agg(j.run_at ORDER BY n) AS run_ats,
            array_agg(j.ttl_us ORDER BY n) AS ttls,
            -- No key at all is the plain way in, which takes all jobs at once.
            CASE WHEN count(j.key) > 0 THEN array_agg(j.key ORDER BY n) END AS keys,
            array_agg(j.key_us ORDER BY n) AS key_lengths,
            array_agg(j.group_name ORDER BY n) AS groups, array_agg(j.tags ORDER BY n) AS tags,
            array_agg(j.origin ORDER BY n) AS origins,
            array_agg(j.max_attempts ORDER BY n) AS attempts,
                array_agg(j.keep_us ORDER BY n) AS keeps,
            array_agg(j.parents ORDER BY n) AS parents,
            array_agg(j.ends_with_parents ORDER BY n) AS ends,
            array_agg(j.edges ORDER BY n) AS edges,
            array_agg(j.edge_bytes ORDER BY n) AS edge_bytes
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS each(job, n)
        CROSS JOIN LATERAL jsonb_to_record(each.job) AS j(
            tenant text, id text, queue text, type text, codec text, version integer, payload text,
            rules text, priority bigint, delay_us bigint, run_at bigint, ttl_us bigint, key text,
            key_us bigint, group_name text, tags text, origin text, max_attempts integer,
            keep_us bigint, parents integer, ends_with_parents boolean, edges text,
            edge_bytes integer
        )
    ) u CROSS JOIN LATERAL holdfast.enqueue(
        u.tenants, u.ids, u.queues, u.types, u.codecs, u.versions, u.payloads, u.rules,
        u.priorities, u.delays, u.run_ats, u.ttls, u.keys, u.key_lengths, u.groups, u.tags,
        u.origins, u.attempts, u.keeps, given_now, events, channel, hint, parents => u.parents,
        ends => u.ends, edges => u.edges, edge_bytes => u.edge_bytes
    ) a
$$;

-- An INSERT into the view `queue_jobs` is an enqueue.
CREATE OR REPLACE FUNCTION holdfast.queue_jobs_insert() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    answer holdfast.answer;
    says record;
    attempts integer;
BEGIN
    -- The name of the setting in two parts, for the schema may have another name than the setting.
    NEW.tenant := coalesce(NEW.tenant, nullif(current_setting('holdfast' || '.tenant', true), ''));
    IF NEW.tenant IS NULL THEN
        RAISE EXCEPTION 'queue_jobs.tenant: is not given, and the setting % has no value',
            'holdfast' || '.tenant' USING ERRCODE = 'check_violation',
            HINT = 'Name a tenant, or set one: ALTER ROLE ... SET holdfast' || '.tenant = ...';
    END IF;
    SELECT * INTO says FROM holdfast.type_defaults(NEW.job_type);
    attempts := coalesce(NEW.max_attempts, says.max_attempts);
    NEW.queue := coalesce(NEW.queue, says.queue);
    NEW.id := coalesce(NEW.id, gen_random_uuid()::text);
    NEW.priority := coalesce(NEW.priority, says.priority);
    PERFORM holdfast.check_word('tenant', NEW.tenant, 128);
    PERFORM holdfast.check_word('job_type', NEW.job_type, 128);
    PERFORM holdfast.check_word('queue', NEW.queue, 128);
    PERFORM holdfast.check_word('id', NEW.id, 128);
    IF NEW.idempotency_key IS NOT NULL THEN
        PERFORM holdfast.check_word('idempotency_key', NEW.idempotency_key, 512);
    END IF;
    IF NEW.group_name IS NOT NULL THEN
        PERFORM holdfast.check_word('group_name', NEW.group_name, 256);
    END IF;
    IF NEW.payload IS NULL OR jsonb_typeof(NEW.payload) <> 'object' THEN
        RAISE EXCEPTION 'queue_jobs.payload: must be a JSON object with the fields of the job type'
            USING ERRCODE = 'check_violation';
    END IF;
    IF octet_length(NEW.payload::text) > 262144 THEN
        RAISE EXCEPTION 'queue_jobs.payload: has % bytes, at most 262144',
            octet_length(NEW.payload::text) USING ERRCODE = 'check_violation';
    END IF;
    IF attempts NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION 'queue_jobs.max_attempts: is %, must be 1 to 1000', attempts
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.priority NOT BETWEEN -2147483648 AND 2147483648 THEN
        RAISE EXCEPTION 'queue_jobs.priority: is %, must be -2147483648 to 2147483648', NEW.priority
            USING ERRCODE = 'check_violation';
    END IF;
    SELECT * INTO answer FROM holdfast.enqueue(
        ARRAY[NEW.tenant], ARRAY[NEW.id], ARRAY[NEW.queue], ARRAY[NEW.job_type], ARRAY['json'],
        ARRAY[1], ARRAY[convert_to(NEW.payload::text, 'UTF8')],
        -- What equals a default of the stored format is left out of it.
        ARRAY[(says.rules - 'max_attempts' || CASE attempts WHEN 3 THEN '{}'
            ELSE jsonb_build_object('max_attempts', attempts) END)::text],
        ARRAY[NEW.priority], NULL,
        ARRAY[(extract(epoch FROM NEW.run_at) * 1000000)::bigint], NULL,
        CASE WHEN NEW.idempotency_key IS NOT NULL THEN ARRAY[NEW.idempotency_key] END,
        ARRAY[says.key_us], ARRAY[NEW.group_name], NULL, NULL, ARRAY[attempts],
        ARRAY[says.keep_us], NULL, true,
        'holdfast_' || TG_TABLE_SCHEMA, '*'
    );
    IF answer.why = 'conflict' THEN
        RAISE EXCEPTION 'queue_jobs.id: % is a job of type % in queue %', NEW.id, answer.type,
            answer.queue USING ERRCODE = 'unique_violation';
    ELSIF answer.why = 'full' THEN
        RAISE EXCEPTION 'queue_jobs.tenant: % is full: % of % % are queued', NEW.tenant, answer.has,
            answer.most, answer.queue USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.why = 'many' THEN
        RAISE EXCEPTION 'queue_jobs.tenant: % has % %, the most that a tenant may have', NEW.tenant,
            answer.most, answer.queue USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.why = 'known' THEN
        NEW.id := answer.id;
    END IF;
    RETURN NEW;
END
$$;

-- What jobs of a type get where an INSERT gives no value: what an app has published in the setting
-- `type/<name>` (holdfast/types.py), or else the defaults, also where that setting cannot be read.
CREATE OR REPLACE FUNCTION holdfast.type_defaults(
    job_type text, OUT queue text, OUT priority bigint, OUT rules jsonb, OUT max_attempts integer,
    OUT keep_us bigint, OUT key_us bigint
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    says jsonb;
BEGIN
    SELECT holdfast.as_json('json', s.value) INTO says FROM holdfast.settings s
    WHERE s.name = 'type/' || job_type;
    queue := coalesce(says ->> 'queue', 'default');
    priority := coalesce((says ->> 'priority')::bigint, 0);
    rules := coalesce(says -> 'rules', '{}');
    max_attempts := coalesce((rules ->> 'max_attempts')::integer, 3);
    keep_us := coalesce((rules ->> 'keep_us')::bigint, 86400000000);
    key_us := (rules ->> 'key_us')::bigint;
    IF jsonb_typeof(rules) <> 'object' OR max_attempts NOT BETWEEN 1 AND 1000 OR keep_us < 0
        OR key_us < 0
    THEN
        RAISE check_violation;
    END IF;
EXCEPTION WHEN data_exception OR check_violation THEN
    queue := 'default'; priority := 0; rules := '{}'; max_attempts := 3; keep_us := 86400000000;
    key_us := NULL;
END
$$;

-- Refuses a word that no job may have, naming its column.
CREATE OR REPLACE FUNCTION holdfast.check_word(col text, word text, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF word IS NULL OR word = '' OR length(word) > most OR word <> btrim(word)
        OR word ~ '[[:cntrl:]]'
    THEN
        RAISE EXCEPTION 'queue_jobs.%: must be 1 to % characters, none of them a control character,'
            ' without spaces at its ends', col, most USING ERRCODE = 'check_violation';
    END IF;
END
$$;

-- The payload as JSON; NULL if another codec wrote it.
CREATE OR REPLACE FUNCTION holdfast.as_json(codec text, payload bytea) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN codec = 'json' THEN convert_from(payload, 'UTF8')::jsonb END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Microseconds since 1970 as a timestamp.
CREATE OR REPLACE FUNCTION holdfast.to_time(micros bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT timestamptz 'epoch' + micros * interval '1 microsecond'
$$;

-- Completes a leased job in the caller's transaction, for a handler whose own writes commit with
-- it. Returns NULL, or the code of the error that refuses it, by the order of P3. The row of the
-- job is locked first, so that a heartbeat at the same moment does not get in the way; whoever
-- else wants to change the job waits for the commit. Readers of events wait for it too: if nothing
-- comes for `idle_ms` the server ends the session, which undoes all of it.
CREATE OR REPLACE FUNCTION holdfast.complete_json(
    job jsonb, given_now bigint, events boolean, channel text, idle_ms integer, edges_max integer
) RETURNS text LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    its_tenant text := job ->> 'tenant';
    its_id text := job ->> 'id';
    now bigint;
    held record;
    done record;
BEGIN
    SELECT j.state, j.token, j.lease_until INTO held FROM holdfast.jobs j
    WHERE j.tenant = its_tenant AND j.id = its_id FOR UPDATE;
    IF NOT FOUND THEN
        SELECT h.state INTO held FROM holdfast.history h
        WHERE h.tenant = its_tenant AND h.id = its_id LIMIT 1;
        RETURN CASE WHEN NOT FOUND THEN 'JOB_NOT_FOUND'
            WHEN held.state = 'canceled' THEN 'JOB_CANCELED' ELSE 'JOB_TERMINAL' END;
    END IF;
    now := holdfast.now_us(given_now);
    IF held.token IS DISTINCT FROM job ->> 'token' THEN
        RETURN 'INVALID_LEASE_TOKEN';
    ELSIF held.state <> 'processing' OR held.lease_until IS NULL OR held.lease_until <= now THEN
        RETURN 'LEASE_EXPIRED';
    END IF;
    SELECT * INTO done FROM holdfast.complete_jobs(
        ARRAY[(job ->> 'seq')::bigint], ARRAY[job ->> 'token'], ARRAY[its_tenant], ARRAY[its_id],
        ARRAY[decode(job ->> 'result', 'base64')], now, events, channel, '', edges_max
    );
    IF done.places IS NOT NULL THEN
        RAISE EXCEPTION 'job % was not completed, though its lease is valid', its_id;
    END IF;
    PERFORM holdfast.notify_ended_jobs(ARRAY[its_tenant], ARRAY[its_id], channel, '');
    IF channel IS NOT NULL AND (done.named IS NOT NULL OR done.unnamed IS NOT NULL) THEN
        PERFORM pg_notify(channel, '*');  -- The next claims follow the edges that are left.
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', idle_ms::text, true)
    FROM pg_settings s
    WHERE s.name = 'idle_in_transaction_session_timeout'
        AND (s.setting::bigint = 0 OR s.setting::bigint > idle_ms);
    RETURN NULL;
END
$$;
