-- Claims of the last minute, so that a repeated one is recognised.

-- Notes what a claim has leased, so that it is recognised when it is repeated, and takes the tokens
-- of the platform that no round of it has taken. True when sleepers must be told of a new instant.
CREATE OR REPLACE FUNCTION holdfast.finish_claim(
    of_nonce text, leased bigint[], repeats_until bigint, by_platform holdfast.platform_claim,
    now bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF leased = '{}' THEN
        RETURN false;
    END IF;
    INSERT INTO holdfast.claims AS c VALUES (of_nonce, repeats_until, leased)
    ON CONFLICT ON CONSTRAINT claims_pkey
    DO UPDATE SET until = excluded.until, seqs = excluded.seqs;
    RETURN coalesce(NOT by_platform.by_rounds, false)
        AND holdfast.take_platform_tokens(leased, by_platform.priced, now);
END
$$;

-- The jobs of an earlier claim with this nonce.
CREATE OR REPLACE FUNCTION holdfast.leased_before(of_nonce text, now bigint) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    its holdfast.claims;
BEGIN
    -- By the nonce alone, since a plan made for an empty table may read all that end later.
    SELECT * INTO its FROM holdfast.claims c WHERE c.nonce = of_nonce;
    RETURN CASE WHEN its.until > now THEN its.seqs ELSE '{}' END;
END
$$;

-- The leases of an earlier claim that still hold. Only those of the lines that the claim names: the
-- nonce that it repeats may be somebody else's.
CREATE OR REPLACE FUNCTION holdfast.repeat_claim(
    of_nonce text, of_seqs bigint[], in_tenants text[], in_queues text[], now bigint
) RETURNS SETOF holdfast.lease LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY
    SELECT 1, j.tenant, j.id, j.queue, j.type, j.codec, j.version, j.payload, j.rules, j.priority,
        j.key, j.group_name, j.tags, j.origin, j.seq, j.attempt, j.fence, j.lapses, j.misses,
        j.created_at, j.updated_at, j.run_at, j.expires_at, j.lease_until, j.reason, j.error,
        j.journal
    FROM holdfast.jobs j
    WHERE j.seq = ANY (of_seqs) AND j.state = 'processing' AND j.lease_until > now
        AND j.token = of_nonce || '.' || j.seq
        AND (in_tenants IS NULL OR j.tenant = ANY (in_tenants))
        AND (in_queues IS NULL OR j.queue = ANY (in_queues));
END
$$;

-- Deletes claims that cannot be repeated any more, from where the last call stopped.
CREATE OR REPLACE FUNCTION holdfast.delete_old_claims(now bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    low bigint := (SELECT claims_floor FROM holdfast.store_state);
    last bigint;
BEGIN
    WITH gone AS (
        DELETE FROM holdfast.claims WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM holdfast.claims c WHERE c.until >= low AND c.until <= now
            ORDER BY c.until LIMIT 10000
        ))
        RETURNING until
    )
    SELECT max(until) INTO last FROM gone;
    UPDATE holdfast.store_state SET claims_floor = last WHERE last IS NOT NULL;
    DELETE FROM holdfast.waiters WHERE until < clock_timestamp() - interval '1 minute';
END
$$;
