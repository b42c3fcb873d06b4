-- Which jobs a claim takes: repair first, then the lines in turn. And what a sleeper waits for.

CREATE TYPE holdfast.line AS (
    tenant text, queue text, has bigint, turn bigint, credit bigint, low_rank bigint, low_seq bigint
);

-- Seconds until something known will be worth a look, as microseconds; 0 when it already is.
CREATE FUNCTION holdfast.soonest(
    in_tenants text[], in_queues text[], given_now bigint
) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.instant(given_now);
    head bigint;
    low record;
BEGIN
    IF EXISTS (SELECT FROM holdfast.lines(in_tenants, in_queues, 1, '{}', '{}'))
        OR holdfast.unlooked()
    THEN
        RETURN 0;
    END IF;
    SELECT * INTO low FROM holdfast.floors();
    SELECT least(
        (SELECT run_at FROM holdfast.due WHERE run_at >= low.due ORDER BY run_at LIMIT 1),
        (
            SELECT until FROM holdfast.leases WHERE NOT spent AND until >= low.held
            ORDER BY until LIMIT 1
        ),
        (SELECT at FROM holdfast.reopen ORDER BY at LIMIT 1)
    ) INTO head;
    RETURN CASE WHEN head IS NULL THEN 3600000000 ELSE greatest(0, head - now) END;
END
$$;

-- The first jobs of a line whose tenant has settings: within the room of its scopes. Jobs whose
-- groups have none after all step back.
CREATE FUNCTION holdfast.pick_ruled(
    of_tenant text, of_queue text, wanted bigint, low_rank bigint, low_seq bigint,
    excluded text[], now bigint, INOUT more jsonb, OUT picked bigint[], OUT allowed bigint
) LANGUAGE plpgsql AS $$
DECLARE
    grouped boolean;
    gate record;
    job record;
    back bigint[];
    starts boolean;
BEGIN
    picked := '{}';
    SELECT least(
        wanted,
        (SELECT r.room FROM holdfast.scope_room('tenant', of_tenant, '', now, more) r),
        (SELECT r.room FROM holdfast.scope_room('queue', of_tenant, of_queue, now, more) r)
    ), coalesce((SELECT r.grouped FROM holdfast.ruled r WHERE r.tenant = of_tenant), false)
    INTO allowed, grouped;
    WHILE cardinality(picked) < allowed LOOP
        back := '{}';
        FOR job IN
            SELECT r.seq, r.group_name FROM holdfast.ready r CROSS JOIN LATERAL (
                SELECT FROM holdfast.jobs j
                WHERE j.seq = r.seq AND j.state = 'enqueued' AND j.late = 0
                LIMIT 1 FOR UPDATE SKIP LOCKED
            ) job
            WHERE r.gate = 0 AND r.queue = of_queue AND r.tenant = of_tenant
                AND (r.expires_at IS NULL OR r.expires_at > now)
                AND (r.group_name IS NULL OR NOT r.group_name = ANY (excluded))
                AND NOT r.seq = ANY (picked) AND (r.rank, r.seq) >= (low_rank, low_seq)
            ORDER BY r.rank, r.seq LIMIT allowed - cardinality(picked)
        LOOP
            IF NOT grouped OR job.group_name IS NULL THEN
                picked := picked || job.seq;
                CONTINUE;
            END IF;
            SELECT * INTO gate FROM holdfast.group_gate(of_tenant, job.group_name, of_queue);
            starts := gate.open;
            IF NOT starts THEN
                SELECT r.room > 0 INTO starts FROM holdfast.room(
                    'group', of_tenant, job.group_name, gate.max_running, gate.price_us, gate.burst,
                    gate.paused, gate.slots_count, now, more
                ) r;
            END IF;
            IF starts THEN
                picked := picked || job.seq;
                PERFORM holdfast.spend('group', of_tenant, job.group_name, gate.price_us, 1, now);
                more := holdfast.started(
                    more, holdfast.scope_key('group', of_tenant, job.group_name), 1
                );
            ELSE
                back := back || job.seq;
            END IF;
        END LOOP;
        PERFORM holdfast.put_gate(back, 1::smallint);
        CONTINUE WHEN cardinality(back) > 0 OR cardinality(picked) = allowed;
        -- Fewer than there should be: once more from the very beginning, lest one be forgotten.
        EXIT WHEN low_rank = -9223372036854775808;
        low_rank := -9223372036854775808;
        low_seq := 0;
    END LOOP;
    IF cardinality(picked) > 0 THEN
        more := holdfast.started(
            more, holdfast.scope_key('tenant', of_tenant, ''), cardinality(picked)
        );
        more := holdfast.started(
            more, holdfast.scope_key('queue', of_tenant, of_queue), cardinality(picked)
        );
        PERFORM holdfast.spend('tenant', of_tenant, '', s.price_us, cardinality(picked), now)
        FROM holdfast.scopes s WHERE s.kind = 'tenant' AND s.tenant = of_tenant AND s.part = '';
        PERFORM holdfast.spend('queue', of_tenant, of_queue, s.price_us, cardinality(picked), now)
        FROM holdfast.scopes s
        WHERE s.kind = 'queue' AND s.tenant = of_tenant AND s.part = of_queue;
    END IF;
END
$$;
