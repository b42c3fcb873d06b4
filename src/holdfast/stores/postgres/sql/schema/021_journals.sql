-- Journals, signals and joins; layout.py says what each part is for.

ALTER TABLE holdfast.jobs
    ADD COLUMN awaits text COLLATE "C", ADD COLUMN journal text, ADD COLUMN edges integer;
ALTER TABLE holdfast.history ADD COLUMN journal text, ADD COLUMN edges integer;

-- Jobs that wait for their parents have gate 4, and no more to do with it than those that are due
-- later.
DROP INDEX holdfast.jobs_ages;
CREATE INDEX jobs_ages ON holdfast.jobs (tenant, queue, run_at) WHERE gate NOT IN (2, 4);

-- Ended jobs that others may await, which upkeep looks up one by one.
CREATE INDEX history_parents ON holdfast.history (keep_until) WHERE edges IS NOT NULL;

-- What a job remembers, but for its joins.
CREATE TABLE holdfast.entries (
    seq   bigint NOT NULL,
    at    bigint NOT NULL,
    kind  text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    value bytea  NOT NULL,
    PRIMARY KEY (seq, kind, name)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE holdfast.entries ALTER COLUMN value SET STORAGE EXTERNAL;

CREATE TABLE holdfast.joins (
    seq    bigint  NOT NULL,
    at     bigint  NOT NULL,
    total  integer NOT NULL,
    due    integer NOT NULL,
    failed integer NOT NULL DEFAULT 0,
    name   text COLLATE "C" NOT NULL,
    PRIMARY KEY (seq, name)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

CREATE TABLE holdfast.edges (
    seq        bigint  NOT NULL,
    number     integer NOT NULL,
    target     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    on_failure text COLLATE "C" NOT NULL,
    PRIMARY KEY (seq, number)
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- Jobs that have ended, whose edges have to be followed.
CREATE TABLE holdfast.releasing (
    seq      bigint  NOT NULL PRIMARY KEY,
    edges    integer NOT NULL,
    followed integer NOT NULL DEFAULT 0,
    tenant   text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    state    text COLLATE "C" NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX releasing_tenant ON holdfast.releasing (tenant, seq);

-- Deleted jobs of which upkeep has to delete the journals and edges yet.
CREATE TABLE holdfast.leftovers (
    seq bigint PRIMARY KEY
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

ALTER TYPE holdfast.lease ADD ATTRIBUTE journal text;
