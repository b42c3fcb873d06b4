-- Which sleepers to wake, and when they wake by themselves.

-- Microseconds until a claim may find something; 0 when it already may. Where edges of ended jobs
-- are left it is soon: somebody may be following them now.
CREATE OR REPLACE FUNCTION holdfast.next_wakeup_us(
    in_tenants text[], in_queues text[], given_now bigint
) RETURNS bigint LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
BEGIN
    IF holdfast.has_backlog() THEN
        RETURN 0;
    ELSIF holdfast.can_claim(in_tenants, in_queues, now) OR holdfast.scopes_need_refresh() THEN
        RETURN 0;
    END IF;
    RETURN holdfast.next_instant_us(low.due, low.held, now) FROM holdfast.scan_floors() low;
END
$$;

-- Microseconds until time alone may give a claim something; 0 when it already has.
CREATE OR REPLACE FUNCTION holdfast.next_instant_us(low_due bigint, low_held bigint, now bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    head bigint;
BEGIN
    SELECT least(
        (
            SELECT run_at FROM holdfast.jobs WHERE gate = 2 AND late = 0 AND run_at >= low_due
            ORDER BY run_at LIMIT 1
        ),
        (
            SELECT until FROM holdfast.leases WHERE NOT spent AND until >= low_held
            ORDER BY until LIMIT 1
        ),
        (SELECT at FROM holdfast.reopen_times ORDER BY at LIMIT 1),
        (SELECT now + 20000 FROM holdfast.releasing ORDER BY tenant, seq LIMIT 1)
    ) INTO head;
    RETURN CASE WHEN head IS NULL THEN 3600000000 ELSE greatest(0, head - now) END;
END
$$;

-- What a claim tells its caller about sleepers, in rows without a seq. An empty one: all of them
-- must look again. One with a run_at: a limit over all tenants left no room in the whole store, and
-- a claim may find something in so many microseconds if no job ends before. The caller can sleep
-- so long without another look. From `low_due` and `low_held` on there are due jobs and leases.
CREATE OR REPLACE FUNCTION holdfast.tell_caller(
    wakes boolean, is_full boolean, channel text, low_due bigint, low_held bigint, now bigint
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
DECLARE
    told holdfast.lease;
BEGIN
    IF wakes THEN
        RETURN NEXT told;
        PERFORM pg_notify(channel, '*') WHERE channel IS NOT NULL;
    END IF;
    IF is_full THEN
        told.run_at := holdfast.next_instant_us(low_due, low_held, now);
        RETURN NEXT told;
    END IF;
END
$$;

-- Notes that somebody waits for the end of a job.
CREATE OR REPLACE FUNCTION holdfast.watch_job(of_tenant text, of_id text, seconds double precision)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO holdfast.waiters AS w
    VALUES (of_tenant, of_id, clock_timestamp() + seconds * interval '1 second')
    ON CONFLICT (tenant, id) DO UPDATE SET until = excluded.until WHERE w.until < excluded.until;
END
$$;

-- Notifies other processes that these jobs may have ended, as far as somebody waits for them.
CREATE OR REPLACE FUNCTION holdfast.notify_ended_jobs(
    tenants text[], ids text[], channel text, sender text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended jsonb;
BEGIN
    IF channel IS NULL OR NOT EXISTS (SELECT FROM holdfast.waiters) THEN
        RETURN;
    END IF;
    SELECT jsonb_agg(jsonb_build_array(w.tenant, w.id)) INTO ended
    FROM unnest(tenants, ids) AS u(tenant, id)
    JOIN holdfast.waiters w ON w.tenant = u.tenant AND w.id = u.id
    WHERE w.until > clock_timestamp();
    IF ended IS NOT NULL THEN
        PERFORM pg_notify(channel, CASE
            WHEN octet_length(ended::text) < 7900
            THEN jsonb_build_array(sender, '[]'::jsonb, ended)::text ELSE '*' END);
    END IF;
END
$$;

-- The lines that may have come up because jobs of these tenants ended; other processes are
-- notified. A line without names: any line, since there is room under a limit of the platform.
CREATE OR REPLACE FUNCTION holdfast.notify_freed_lines(
    tenants text[], channel text, sender text, OUT t text, OUT q text
) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    lines jsonb;
BEGIN
    IF tenants IS NULL THEN
        RETURN;
    ELSIF (SELECT h.platform FROM holdfast.store_state h) AND holdfast.platform_may_wait() THEN
        PERFORM pg_notify(channel, jsonb_build_array(sender, '[["", ""]]'::jsonb)::text)
        WHERE channel IS NOT NULL;
        RETURN QUERY SELECT '', '';
        RETURN;
    ELSIF NOT (SELECT h.limits_all FROM holdfast.store_state h) AND NOT EXISTS (
        SELECT FROM holdfast.tenants_with_settings r WHERE r.tenant = ANY (tenants)
    ) THEN
        RETURN;
    END IF;
    SELECT jsonb_agg(jsonb_build_array(f.tenant, f.queue)) INTO lines
    FROM holdfast.lines_with_settings(tenants) f;
    IF channel IS NOT NULL AND lines IS NOT NULL THEN
        PERFORM pg_notify(channel, CASE
            WHEN octet_length(lines::text) < 7900
            THEN jsonb_build_array(sender, lines)::text ELSE '*' END);
    END IF;
    RETURN QUERY SELECT l ->> 0, l ->> 1 FROM jsonb_array_elements(lines) l;
END
$$;

-- The lines of those of these tenants that have settings, or of all that the platform's defaults
-- limit; and one without names, as above.
CREATE OR REPLACE FUNCTION holdfast.lines_with_settings(
    tenants text[], OUT tenant text, OUT queue text
) RETURNS SETOF record LANGUAGE sql VOLATILE SET jit = off AS $$
    WITH limited AS MATERIALIZED (
        SELECT u.tenant FROM unnest(tenants) u(tenant) CROSS JOIN holdfast.store_state h
        WHERE h.limits_all
        UNION
        SELECT r.tenant FROM holdfast.tenants_with_settings r WHERE r.tenant = ANY (tenants)
    )
    SELECT c.tenant, c.part FROM holdfast.counts c JOIN limited l ON l.tenant = c.tenant
    WHERE c.kind = 'queue' AND c.tenant = ANY (tenants)
    UNION
    SELECT d.tenant, d.queue FROM holdfast.deltas d JOIN limited l ON l.tenant = d.tenant
    WHERE d.id >= (SELECT deltas_floor FROM holdfast.store_state) AND d.queue IS NOT NULL
        AND d.tenant = ANY (tenants)
    UNION
    SELECT '', '' WHERE holdfast.platform_may_wait()
$$;
