-- For those who speak SQL: enqueue on a connection of any driver, and two views.

-- `enqueue` for callers that cannot pass arrays of bytes: one JSON document, payloads in base64.
CREATE FUNCTION holdfast.enqueue_json(
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
            array_agg(j.max_attempts ORDER BY n) AS attempts, array_agg(j.keep_us ORDER BY n) AS keeps
        FROM jsonb_array_elements(jobs) WITH ORDINALITY AS each(job, n)
        CROSS JOIN LATERAL jsonb_to_record(each.job) AS j(
            tenant text, id text, queue text, type text, codec text, version integer, payload text,
            rules text, priority bigint, delay_us bigint, run_at bigint, ttl_us bigint, key text,
            key_us bigint, group_name text, tags text, origin text, max_attempts integer,
            keep_us bigint
        )
    ) u CROSS JOIN LATERAL holdfast.enqueue(
        u.tenants, u.ids, u.queues, u.types, u.codecs, u.versions, u.payloads, u.rules,
        u.priorities, u.delays, u.run_ats, u.ttls, u.keys, u.key_lengths, u.groups, u.tags,
        u.origins, u.attempts, u.keeps, given_now, events, channel, hint
    ) a
$$;

CREATE FUNCTION holdfast.to_time(micros bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
    SELECT timestamptz 'epoch' + micros * interval '1 microsecond'
$$;

-- The payload as JSON where it is; NULL where another codec wrote it.
CREATE FUNCTION holdfast.as_json(codec text, payload bytea) RETURNS jsonb LANGUAGE plpgsql
IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN codec = 'json' THEN convert_from(payload, 'UTF8')::jsonb END;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;

-- Jobs that wait or run, and those that ended well or were canceled while their record is kept. An
-- INSERT is an enqueue: tenant, job_type and payload are all it needs.
CREATE VIEW holdfast.queue_jobs AS
SELECT j.tenant, j.id, j.queue, j.type AS job_type, holdfast.as_json(j.codec, j.payload) AS payload,
    CASE j.state WHEN 'processing' THEN 'processing' ELSE 'pending' END AS status, j.state,
    j.priority, j.attempt AS attempts, j.max_attempts, j.key AS idempotency_key, j.group_name,
    holdfast.to_time(j.run_at) AS run_at,
    CASE WHEN j.state = 'processing' THEN holdfast.to_time(j.updated_at) END AS heartbeat_at,
    j.worker, j.error AS last_error, holdfast.to_time(j.created_at) AS created_at,
    NULL::timestamptz AS finished_at
FROM holdfast.jobs j
UNION ALL
SELECT h.tenant, h.id, h.queue, h.type, holdfast.as_json(h.codec, h.payload), h.state, h.state,
    h.priority, h.attempt, h.max_attempts, h.key, h.group_name, holdfast.to_time(h.run_at), NULL,
    NULL, h.error, holdfast.to_time(h.created_at), holdfast.to_time(h.finished_at)
FROM holdfast.history h WHERE h.state <> 'failed';

-- The dead letters.
CREATE VIEW holdfast.queue_jobs_dlq AS
SELECT h.tenant, h.id, h.queue, h.type AS job_type, holdfast.as_json(h.codec, h.payload) AS payload,
    h.reason, h.error, h.priority, h.attempt AS attempts, h.max_attempts, h.replayed_as,
    holdfast.to_time(h.created_at) AS created_at, holdfast.to_time(h.finished_at) AS failed_at
FROM holdfast.history h WHERE h.state = 'failed';

-- Refuses what no job may be, naming the column.
CREATE FUNCTION holdfast.check_word(col text, word text, most integer) RETURNS void
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

CREATE FUNCTION holdfast.queue_jobs_insert() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    answer holdfast.answer;
    attempts integer := coalesce(NEW.max_attempts, 3);
BEGIN
    NEW.queue := coalesce(NEW.queue, 'default');
    NEW.id := coalesce(NEW.id, gen_random_uuid()::text);
    NEW.priority := coalesce(NEW.priority, 0);
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
        ARRAY[CASE attempts WHEN 3 THEN '{}' ELSE json_build_object('max_attempts', attempts)::text
            END],
        ARRAY[NEW.priority], NULL,
        ARRAY[(extract(epoch FROM NEW.run_at) * 1000000)::bigint], NULL,
        CASE WHEN NEW.idempotency_key IS NOT NULL THEN ARRAY[NEW.idempotency_key] END, NULL,
        ARRAY[NEW.group_name], NULL, NULL, ARRAY[attempts], ARRAY[86400000000], NULL, true,
        'holdfast_' || TG_TABLE_SCHEMA, '*'
    );
    IF answer.why = 'conflict' THEN
        RAISE EXCEPTION 'queue_jobs.id: % is a job of type % in queue %', NEW.id, answer.type,
            answer.queue USING ERRCODE = 'unique_violation';
    ELSIF answer.why = 'full' THEN
        RAISE EXCEPTION 'queue_jobs.tenant: % is full: % of % % are queued', NEW.tenant, answer.has,
            answer.most, answer.queue USING ERRCODE = 'configuration_limit_exceeded';
    ELSIF answer.why = 'known' THEN
        NEW.id := answer.id;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER queue_jobs_insert INSTEAD OF INSERT ON holdfast.queue_jobs
FOR EACH ROW EXECUTE FUNCTION holdfast.queue_jobs_insert();
