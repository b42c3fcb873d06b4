-- The shortest way in, for one job alone.

-- Keeps one plain job whose id was made for this very call: as `enqueue_alike`, but without arrays
-- and without a subtransaction to undo, which are half of its time for a single job. False where
-- there is a cap to keep or the id is known: nothing was done then, and `enqueue` must see to it.
CREATE FUNCTION holdfast.enqueue_one(
    of_tenant text, of_queue text, of_type text, of_codec text, of_version integer, of_rules text,
    of_priority bigint, of_attempts integer, of_keep bigint, of_id text, of_payload bytea,
    given_now bigint, events boolean, channel text, hint text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    now bigint := coalesce(given_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    bytes integer := coalesce(octet_length(of_payload), 0);
    new bigint;
BEGIN
    PERFORM FROM holdfast.ruled r
    WHERE r.tenant = of_tenant AND (r.max_queued IS NOT NULL OR r.max_bytes IS NOT NULL);
    IF FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.jobs (
        seq, tenant, id, queue, type, codec, version, payload, rules, priority, run_at, state,
        created_at, updated_at, max_attempts, keep_us, size
    )
    VALUES (
        nextval('holdfast.seqs'), of_tenant, of_id, of_queue, of_type, of_codec, of_version,
        of_payload, of_rules, of_priority, now, 'enqueued', now, now, of_attempts, of_keep, bytes
    )
    ON CONFLICT DO NOTHING RETURNING seq INTO new;
    IF new IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.ready
    VALUES (new, -of_priority, now, NULL, 0, of_tenant, of_queue, NULL);
    INSERT INTO holdfast.deltas (tenant, queue, enqueued, bytes, head_rank, head_seq)
    VALUES (of_tenant, of_queue, 1, bytes, -of_priority, new);
    IF events THEN
        PERFORM holdfast.announce();
        INSERT INTO holdfast.events
        VALUES (
            nextval('holdfast.cursors'), now, 'enqueued', of_tenant, of_id, of_queue, of_type, 0, 0
        );
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, hint);
    END IF;
    RETURN true;
END
$$;
