-- Extend.

-- Renews leases. Returns the places of those that were renewed, and their new deadlines.
CREATE OR REPLACE FUNCTION holdfast.extend(
    seqs bigint[], tokens text[], tenants text[], ids text[], lengths bigint[], progresses text[],
    given_now bigint, events boolean, OUT ord integer, OUT until bigint
) RETURNS SETOF record LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
SET enable_sort = off SET enable_bitmapscan = off AS $$
DECLARE
    now bigint := holdfast.now_us(given_now);
BEGIN
    IF events THEN
        PERFORM holdfast.announce();
    END IF;
    RETURN QUERY
    WITH named AS MATERIALIZED (
        SELECT u.token, u.length, u.progress, u.ord, found.ctid AS place
        FROM unnest(seqs, tokens, tenants, ids, lengths, progresses) WITH ORDINALITY
            AS u(seq, token, tenant, id, length, progress, ord)
        CROSS JOIN LATERAL (
            SELECT j.ctid FROM holdfast.jobs j
            WHERE j.seq = u.seq AND j.token = u.token AND j.tenant = u.tenant
                AND j.id = u.id LIMIT 1
        ) found
    ), renewed AS (
        UPDATE holdfast.jobs j SET lease_until = greatest(j.lease_until, now + n.length),
            progress = coalesce(n.progress, j.progress), updated_at = now
        FROM named n
        WHERE j.ctid = n.place AND j.token = n.token AND j.state = 'processing'
            AND j.lease_until > now
        RETURNING n.ord, j.tenant, j.id, j.queue, j.type, j.attempt, j.fence, j.lease_until, j.seq,
            j.attempt >= j.max_attempts AS spent
    ), held AS (
        INSERT INTO holdfast.leases (until, spent, seqs)
        SELECT r.lease_until, r.spent, array_agg(r.seq) FROM renewed r
        GROUP BY r.lease_until, r.spent
    ), recorded AS (
        INSERT INTO holdfast.events
        SELECT nextval('holdfast.cursors'), now, 'extended', r.tenant, r.id, r.queue, r.type,
            r.attempt, r.fence, r.lease_until
        FROM (SELECT * FROM renewed x ORDER BY x.ord) r WHERE events
    )
    SELECT r.ord::integer, r.lease_until FROM renewed r;
END
$$;
