-- Edges, and the join of its parents, are in the row of a job; layout.py says how.

DROP INDEX holdfast.history_parents;
ALTER TABLE holdfast.jobs DROP COLUMN edges;
ALTER TABLE holdfast.jobs ADD COLUMN edges text[], ADD COLUMN parents integer[];
ALTER TABLE holdfast.history DROP COLUMN edges;
ALTER TABLE holdfast.history ADD COLUMN edges text[], ADD COLUMN parents integer[];
ALTER TYPE holdfast.lease ADD ATTRIBUTE parents integer[];

UPDATE holdfast.jobs j SET edges = e.list FROM (
    SELECT seq, array_agg(target || E'\x1f' || name || E'\x1f' || on_failure ORDER BY number)
        AS list
    FROM holdfast.edges GROUP BY seq
) e WHERE j.seq = e.seq;
UPDATE holdfast.history h SET edges = e.list FROM (
    SELECT seq, array_agg(target || E'\x1f' || name || E'\x1f' || on_failure ORDER BY number)
        AS list
    FROM holdfast.edges GROUP BY seq
) e WHERE h.seq = e.seq;
UPDATE holdfast.jobs j SET parents = ARRAY[x.total, x.due, x.failed]
FROM holdfast.joins x WHERE j.seq = x.seq AND x.name = '';
UPDATE holdfast.history h SET parents = ARRAY[x.total, x.due, x.failed]
FROM holdfast.joins x WHERE h.seq = x.seq AND x.name = '';
DELETE FROM holdfast.joins WHERE name = '';
CREATE INDEX history_parents ON holdfast.history (keep_until) WHERE edges IS NOT NULL;

-- What an ended job has to tell those that await it, in parts.
ALTER TABLE holdfast.releasing DROP CONSTRAINT releasing_pkey;
DROP INDEX holdfast.releasing_tenant;
ALTER TABLE holdfast.releasing RENAME TO old_releasing;
CREATE TABLE holdfast.releasing (
    seq    bigint  NOT NULL,
    part   integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    state  text COLLATE "C" NOT NULL,
    edges  text[]  NOT NULL,
    PRIMARY KEY (tenant, seq, part)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
INSERT INTO holdfast.releasing (seq, part, tenant, id, state, edges)
SELECT o.seq, e.number / 50, o.tenant, o.id, o.state,
    array_agg(e.target || E'\x1f' || e.name || E'\x1f' || e.on_failure ORDER BY e.number)
FROM holdfast.old_releasing o JOIN holdfast.edges e ON e.seq = o.seq AND e.number >= o.followed
GROUP BY o.seq, e.number / 50, o.tenant, o.id, o.state;
DROP TABLE holdfast.old_releasing;
DROP TABLE holdfast.edges;

-- A completed job with edges.
CREATE TYPE holdfast.parent AS (seq bigint, tenant text, id text, edges text[]);
