-- Tiers of tenants, and the platform's defaults.

SELECT pg_advisory_xact_lock(hashtext('holdfast.claims'), 0);

-- What each tier sets; the row without a name has the platform's defaults, and is there as soon as
-- there was any tier (`known`: it is a setting). `rated` and `rated_at`: when its rates changed, as
-- a number of `cursors` and as an instant.
CREATE TABLE holdfast.tiers (
    tier        text COLLATE "C" PRIMARY KEY,
    known       boolean NOT NULL,
    max_running bigint,
    price_us    bigint,
    burst       bigint,
    weight      bigint,
    max_queued  bigint,
    max_bytes   bigint,
    top_running bigint,
    top_price   bigint,
    top_burst   bigint,
    queue_max   bigint,
    queue_price bigint,
    queue_burst bigint,
    group_max   bigint,
    group_price bigint,
    group_burst bigint,
    rated       bigint NOT NULL,
    rated_at    bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Tenants, queues and groups without room, under the tier by which they have none.
CREATE TABLE holdfast.resting (
    tenant text COLLATE "C" NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    part   text COLLATE "C" NOT NULL,
    tier   text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, kind, part)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX resting_tier ON holdfast.resting (tier, kind, tenant, part);

-- What claims look at again after a change of a tier: all of one kind that rests in it; or after a
-- tenant has changed its tier: all that rests of it (kind 'all'). They have looked at what comes up
-- to `after_one`, `after_two`: (tenant, part), or (kind, part) of the tenant.
CREATE TABLE holdfast.looks (
    kind      text COLLATE "C" NOT NULL,
    tier      text COLLATE "C" NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    after_one text COLLATE "C" NOT NULL,
    after_two text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, tier, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- What deltas have named and no claim has checked yet, because there was too much at once.
CREATE TABLE holdfast.unchecked (
    id         bigint PRIMARY KEY DEFAULT nextval('holdfast.cursors'),
    tenant     text COLLATE "C" NOT NULL,
    queue      text COLLATE "C",
    group_name text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

ALTER TABLE holdfast.scopes
    ALTER COLUMN weight DROP NOT NULL,
    ADD COLUMN top_running bigint,
    ADD COLUMN top_price bigint,
    ADD COLUMN top_burst bigint;
-- Its weight as far as the tenant has set one, and the ceilings of tenants, are in `settings`.
UPDATE holdfast.scopes s SET weight = (f.value ->> 'weight')::bigint,
    top_running = (f.value #>> '{ceiling,max_running}')::bigint,
    top_price = ceil(
        (f.value #>> '{ceiling,rate,per_us}')::numeric
        / (f.value #>> '{ceiling,rate,count}')::numeric
    ),
    top_burst = (f.value #>> '{ceiling,rate,burst}')::bigint
FROM (
    SELECT o.tenant, convert_from(o.value, 'UTF8')::jsonb AS value FROM holdfast.settings o
    WHERE o.tenant <> '' AND o.value IS NOT NULL AND starts_with(o.name, 'scope/tenant/')
) f
WHERE s.kind = 'tenant' AND s.tenant = f.tenant AND s.part = '';

-- `tier`: the tenant's own setting; `moved` and `moved_at`: since when, as in `tiers`.
ALTER TABLE holdfast.tenants_with_settings
    ADD COLUMN tier text COLLATE "C",
    ADD COLUMN moved bigint NOT NULL DEFAULT 0,
    ADD COLUMN moved_at bigint NOT NULL DEFAULT 0;
CREATE INDEX tenants_in_tier ON holdfast.tenants_with_settings (tier) WHERE tier IS NOT NULL;

ALTER TABLE holdfast.buckets ADD COLUMN rated bigint NOT NULL DEFAULT 0;
ALTER TABLE holdfast.store_state
    ADD COLUMN tiered boolean NOT NULL DEFAULT false,
    ADD COLUMN limits_all boolean NOT NULL DEFAULT false,
    ADD COLUMN gates_all boolean NOT NULL DEFAULT false;
ALTER TYPE holdfast.platform_claim ADD ATTRIBUTE full_left bigint;

-- Closed lines are checked when deltas name them.
DROP INDEX holdfast.lines_closed;
INSERT INTO holdfast.deltas (tenant, queue)
SELECT c.tenant, c.part FROM holdfast.counts c
    JOIN holdfast.tenants_with_settings r ON r.tenant = c.tenant
WHERE c.kind = 'queue' AND NOT c.open;

-- The limits of a tenant, a queue or a group that count. What its bucket says is older than its
-- rate if its `rated` is smaller than this one; the rate has counted since `rated_at`.
CREATE TYPE holdfast.limits AS (
    max_running bigint, price_us bigint, burst bigint, paused boolean, slots_count boolean,
    rated bigint, rated_at bigint
);

-- A tenant whose room may have changed, with those of its queues and groups that may have.
CREATE TYPE holdfast.tenant_change AS (tenant text, queues text[], groups text[]);

-- What a claim looks at again: `portion` at a time, `room` in all; the last one it has looked at of
-- the tenants that it names (tenant, kind, part); whether it looks at others too.
CREATE TYPE holdfast.looking AS (
    portion bigint, room bigint, named text[], others boolean, found boolean, wakes boolean
);
