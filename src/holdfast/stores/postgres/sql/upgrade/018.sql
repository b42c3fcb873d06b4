-- From format 18 to 19: limits of the platform.

SELECT pg_advisory_xact_lock(hashtext('holdfast.claims'), 0);

DROP INDEX holdfast.jobs_ages;
CREATE INDEX jobs_ages ON holdfast.jobs (tenant, queue, run_at) WHERE gate <> 2;
CREATE INDEX jobs_aside ON holdfast.jobs (type, queue, tenant, (-priority), seq)
    WHERE gate = 3 AND late = 0;
ALTER TABLE holdfast.counts ADD COLUMN kept boolean NOT NULL DEFAULT false;
-- Waits for all transactions that have written deltas, so that later ones have types.
ALTER TABLE holdfast.deltas ADD COLUMN type text COLLATE "C";
ALTER TABLE holdfast.store_state ADD COLUMN platform boolean NOT NULL DEFAULT false;
ALTER TABLE holdfast.scopes ADD COLUMN running bigint NOT NULL DEFAULT 0;
ALTER TABLE holdfast.scopes SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500
);
CREATE TABLE holdfast.aside (
    kind   text COLLATE "C" NOT NULL,
    part   text COLLATE "C" NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    turn   bigint NOT NULL,
    PRIMARY KEY (kind, part, queue, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX aside_turn ON holdfast.aside (kind, part, queue, turn);
CREATE INDEX aside_tenant ON holdfast.aside (tenant, kind, queue);

-- A claim under limits of the platform; its round: running jobs that no count has yet, the number
-- and weights of the tenants, how many times its weight each may take of a scope; the turn of a
-- tenant: its shares of scopes, and what it has taken of them; what may stop the claim (`tight`).
CREATE TYPE holdfast.platform_claim AS (
    dry_tenants text[], dry_queues text[], asides bigint, lets bigint, wakes boolean, now bigint,
    excluded text[], lines_per_claim integer, breadth bigint, running jsonb, number bigint,
    weights bigint, times jsonb, tenant text, turn bigint, weight bigint, is_full boolean,
    kinds text[], parts text[], shares jsonb, taken jsonb, picked bigint[], room bigint,
    tight text[], types_bind boolean, by_rounds boolean, priced boolean, limited boolean
);
