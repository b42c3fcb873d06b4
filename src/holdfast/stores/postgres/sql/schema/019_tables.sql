-- The tables, indexes and types. layout.py draws the tables and says what each part is for.
-- `holdfast.` stands for the schema that the store's URL names.

CREATE SEQUENCE holdfast.seqs;
CREATE SEQUENCE holdfast.cursors;
CREATE SEQUENCE holdfast.instants;

CREATE TABLE holdfast.jobs (
    seq          bigint   NOT NULL PRIMARY KEY,
    priority     bigint   NOT NULL,
    run_at       bigint   NOT NULL,
    created_at   bigint   NOT NULL,
    updated_at   bigint   NOT NULL,
    expires_at   bigint,
    lease_until  bigint,
    keep_us      bigint   NOT NULL,
    version      integer  NOT NULL,
    attempt      integer  NOT NULL DEFAULT 0,
    max_attempts integer  NOT NULL,
    fence        integer  NOT NULL DEFAULT 0,
    lapses       integer  NOT NULL DEFAULT 0,
    misses       integer  NOT NULL DEFAULT 0,
    size         integer  NOT NULL,
    late         smallint NOT NULL DEFAULT 0,
    gate         smallint NOT NULL DEFAULT 0,
    state        text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    codec        text COLLATE "C" NOT NULL,
    token        text COLLATE "C",
    worker       text COLLATE "C",
    key          text COLLATE "C",
    group_name   text COLLATE "C",
    tags         text[],
    origin       text COLLATE "C",
    rules        text     NOT NULL,
    reason       text,
    error        text,
    progress     text,
    payload      bytea
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 2000,
    fillfactor = 42
);
ALTER TABLE holdfast.jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

-- No index here names what a claim changes, so that it need not write to any of them; see
-- layout.py.
CREATE UNIQUE INDEX jobs_name ON holdfast.jobs (tenant, id);
CREATE INDEX jobs_line ON holdfast.jobs (queue, tenant, (-priority), seq)
    WHERE gate = 0 AND late = 0;
CREATE INDEX jobs_group ON holdfast.jobs (tenant, group_name, gate, queue, (-priority), seq)
    WHERE group_name IS NOT NULL AND late = 0;
CREATE INDEX jobs_due ON holdfast.jobs (run_at) WHERE gate = 2 AND late = 0;
CREATE INDEX jobs_ages ON holdfast.jobs (tenant, queue, run_at) WHERE gate <> 2;
CREATE INDEX jobs_aside ON holdfast.jobs (type, queue, tenant, (-priority), seq)
    WHERE gate = 3 AND late = 0;
CREATE INDEX jobs_order ON holdfast.jobs (tenant, group_name, seq) WHERE group_name IS NOT NULL;
CREATE INDEX jobs_ttl ON holdfast.jobs (late, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX jobs_key ON holdfast.jobs (tenant, key) WHERE key IS NOT NULL;

-- What claims have leased.
CREATE TABLE holdfast.leases (
    until bigint   NOT NULL,
    spent boolean  NOT NULL,
    seqs  bigint[] NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0,
    -- The sequences of a full claim fit into a page; compressing costs more than writing them.
    toast_tuple_target = 8160
);
CREATE INDEX leases_until ON holdfast.leases (spent, until);

-- A job that is kept for one to seven days is in the partition of the day on which that ends; all
-- others are in `history_rest`. Nine partitions take turns; layout.py says why.
CREATE TABLE holdfast.history (
    seq          bigint   NOT NULL,
    priority     bigint   NOT NULL,
    run_at       bigint   NOT NULL,
    created_at   bigint   NOT NULL,
    updated_at   bigint   NOT NULL,
    expires_at   bigint,
    finished_at  bigint   NOT NULL,
    keep_until   bigint   NOT NULL,
    keep_us      bigint   NOT NULL,
    version      integer  NOT NULL,
    attempt      integer  NOT NULL,
    max_attempts integer  NOT NULL,
    fence        integer  NOT NULL,
    lapses       integer  NOT NULL,
    misses       integer  NOT NULL,
    size         integer  NOT NULL,
    state        text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    codec        text COLLATE "C" NOT NULL,
    key          text COLLATE "C",
    group_name   text COLLATE "C",
    tags         text[],
    origin       text COLLATE "C",
    replayed_as  text COLLATE "C",
    rules        text     NOT NULL,
    reason       text,
    error        text,
    progress     text,
    payload      bytea,
    result       bytea
) PARTITION BY LIST ((
    CASE WHEN keep_until - finished_at BETWEEN 86400000000 AND 604800000000
    THEN keep_until / 86400000000 % 9 END
));
ALTER TABLE holdfast.history ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE INDEX history_name ON holdfast.history (tenant, id);
CREATE INDEX history_seq ON holdfast.history (seq);
CREATE INDEX history_done ON holdfast.history (keep_until);
CREATE INDEX history_dead ON holdfast.history (tenant, seq) WHERE state = 'failed';
CREATE TABLE holdfast.history_rest PARTITION OF holdfast.history DEFAULT;
CREATE TABLE holdfast.history_0 PARTITION OF holdfast.history FOR VALUES IN (0);
CREATE TABLE holdfast.history_1 PARTITION OF holdfast.history FOR VALUES IN (1);
CREATE TABLE holdfast.history_2 PARTITION OF holdfast.history FOR VALUES IN (2);
CREATE TABLE holdfast.history_3 PARTITION OF holdfast.history FOR VALUES IN (3);
CREATE TABLE holdfast.history_4 PARTITION OF holdfast.history FOR VALUES IN (4);
CREATE TABLE holdfast.history_5 PARTITION OF holdfast.history FOR VALUES IN (5);
CREATE TABLE holdfast.history_6 PARTITION OF holdfast.history FOR VALUES IN (6);
CREATE TABLE holdfast.history_7 PARTITION OF holdfast.history FOR VALUES IN (7);
CREATE TABLE holdfast.history_8 PARTITION OF holdfast.history FOR VALUES IN (8);

CREATE TABLE holdfast.counts (
    kind       text COLLATE "C" NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    part       text COLLATE "C" NOT NULL,
    waiting    bigint  NOT NULL DEFAULT 0,
    scheduled  bigint  NOT NULL DEFAULT 0,
    enqueued   bigint  NOT NULL DEFAULT 0,
    processing bigint  NOT NULL DEFAULT 0,
    retrying   bigint  NOT NULL DEFAULT 0,
    completed  bigint  NOT NULL DEFAULT 0,
    failed     bigint  NOT NULL DEFAULT 0,
    canceled   bigint  NOT NULL DEFAULT 0,
    bytes      bigint  NOT NULL DEFAULT 0,
    blocked    bigint  NOT NULL DEFAULT 0,
    open       boolean NOT NULL DEFAULT true,
    turn       bigint  NOT NULL DEFAULT 0,
    credit     bigint  NOT NULL DEFAULT 0,
    floor_rank bigint,
    floor_seq  bigint,
    lines      bigint  NOT NULL DEFAULT 0,
    queues     bigint  NOT NULL DEFAULT 0,
    groups     bigint  NOT NULL DEFAULT 0,
    tenant_turn bigint NOT NULL DEFAULT 0,
    parked     boolean NOT NULL DEFAULT false,
    kept       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (kind, tenant, part)
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX tenants_turn ON holdfast.counts (turn) WHERE kind = 'tenant' AND open AND lines > 0;
CREATE INDEX lines_turn ON holdfast.counts (tenant, turn)
    WHERE kind = 'queue' AND open AND enqueued > blocked;
CREATE INDEX lines_tenant_turn ON holdfast.counts (part, tenant_turn)
    WHERE kind = 'queue' AND open AND enqueued > blocked AND NOT parked;
CREATE INDEX lines_closed ON holdfast.counts (tenant) WHERE kind = 'queue' AND NOT open;
CREATE INDEX lines_parked ON holdfast.counts (tenant) WHERE kind = 'queue' AND parked;

-- What has changed since the counts were last brought up to date; see layout.py.
CREATE TABLE holdfast.deltas (
    id         bigint  NOT NULL DEFAULT nextval('holdfast.cursors'),
    txid       xid8    NOT NULL DEFAULT pg_current_xact_id(),
    tenant     text COLLATE "C",
    queue      text COLLATE "C",
    group_name text COLLATE "C",
    waiting    integer NOT NULL DEFAULT 0,
    scheduled  integer NOT NULL DEFAULT 0,
    enqueued   integer NOT NULL DEFAULT 0,
    processing integer NOT NULL DEFAULT 0,
    retrying   integer NOT NULL DEFAULT 0,
    completed  integer NOT NULL DEFAULT 0,
    failed     integer NOT NULL DEFAULT 0,
    canceled   integer NOT NULL DEFAULT 0,
    blocked    integer NOT NULL DEFAULT 0,
    bytes      bigint  NOT NULL DEFAULT 0,
    served     boolean NOT NULL DEFAULT false,
    credit     integer,
    head_rank  bigint,
    head_seq   bigint,
    due        bigint,
    leases_until bigint,
    refreshed  pg_snapshot,
    turned     boolean NOT NULL DEFAULT false,
    type       text COLLATE "C"
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX deltas_id ON holdfast.deltas (id);

CREATE TABLE holdfast.store_state (
    one          boolean PRIMARY KEY CHECK (one),
    last_refresh pg_snapshot NOT NULL,
    folded_at    timestamptz NOT NULL,
    events_floor bigint      NOT NULL,
    leases_floor bigint      NOT NULL,
    due_floor    bigint      NOT NULL,
    claims_floor bigint      NOT NULL DEFAULT 0,
    deltas_floor bigint      NOT NULL DEFAULT 0,
    functions    text        NOT NULL DEFAULT '',
    fold_at      integer     NOT NULL DEFAULT 64,
    platform     boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 10);
INSERT INTO holdfast.store_state VALUES (true, '1:1:', now(), 0, 0, 0);

-- The settings of scopes, as the functions read them; `settings` holds what was put.
CREATE TABLE holdfast.scopes (
    kind          text COLLATE "C" NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    part          text COLLATE "C" NOT NULL,
    max_running   bigint,
    price_us      bigint,
    burst         bigint,
    paused        boolean NOT NULL,
    slots_count   boolean NOT NULL,
    weight        bigint  NOT NULL,
    max_queued    bigint,
    max_bytes     bigint,
    ordered       boolean,
    groups_max    bigint,
    groups_price  bigint,
    groups_burst  bigint,
    groups_order  boolean,
    running       bigint  NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Tenants that ever had a setting. No other tenant costs a look-up.
CREATE TABLE holdfast.tenants_with_settings (
    tenant     text COLLATE "C" PRIMARY KEY,
    grouped    boolean NOT NULL,
    max_queued bigint,
    max_bytes  bigint
);

-- Tenants that have as many queues or groups as they may, and how many; found by upkeep.
CREATE TABLE holdfast.full_tenants (
    tenant text COLLATE "C" PRIMARY KEY,
    queues bigint,
    groups bigint
);

CREATE TABLE holdfast.buckets (
    kind    text COLLATE "C" NOT NULL,
    tenant  text COLLATE "C" NOT NULL,
    part    text COLLATE "C" NOT NULL,
    full_at bigint NOT NULL,
    PRIMARY KEY (kind, tenant, part)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

CREATE TABLE holdfast.reopen_times (
    kind   text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    part   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    PRIMARY KEY (kind, tenant, part)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX reopen_times_at ON holdfast.reopen_times (at);

-- Tenants that wait where a limit of the platform leaves a queue (their lines) or a type (jobs of
-- theirs in a queue) no room.
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

CREATE TABLE holdfast.keys (
    tenant text COLLATE "C" NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    type   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    until  bigint,
    PRIMARY KEY (tenant, queue, type, key)
);
CREATE INDEX keys_until ON holdfast.keys (until) WHERE until IS NOT NULL;

CREATE TABLE holdfast.events (
    cursor  bigint  NOT NULL PRIMARY KEY,
    at      bigint  NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    tenant  text COLLATE "C" NOT NULL,
    job_id  text COLLATE "C" NOT NULL,
    queue   text COLLATE "C" NOT NULL,
    type    text COLLATE "C" NOT NULL,
    attempt integer NOT NULL,
    fence   integer NOT NULL,
    until   bigint,
    note    text,
    signed  text
);
CREATE INDEX events_job ON holdfast.events (tenant, job_id, cursor);

CREATE TABLE holdfast.settings (
    name    text COLLATE "C" PRIMARY KEY,
    value   bytea,              -- NULL: deleted; the row keeps its version from being used again
    version bigint NOT NULL,
    tenant  text COLLATE "C"    -- of a scope's setting: whose it is
);
CREATE INDEX settings_tenant ON holdfast.settings (tenant) WHERE tenant IS NOT NULL;

CREATE TABLE holdfast.holds (
    name   text COLLATE "C" PRIMARY KEY,
    owner  text   NOT NULL,
    until  bigint NOT NULL,
    note   text   NOT NULL,
    kind   text COLLATE "C",    -- of a slot: its scope
    tenant text COLLATE "C",
    part   text COLLATE "C"
) WITH (fillfactor = 50);
CREATE INDEX holds_until ON holdfast.holds (until);
CREATE INDEX holds_slots ON holdfast.holds (kind, tenant, part, until) WHERE kind IS NOT NULL;

-- The jobs of each claim of the last minute, by its nonce, so that a repeated claim is recognised.
CREATE TABLE holdfast.claims (
    nonce text COLLATE "C" PRIMARY KEY,
    until bigint   NOT NULL,
    seqs  bigint[] NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0, toast_tuple_target = 8160
);
CREATE INDEX claims_until ON holdfast.claims (until);

-- Jobs whose end somebody waits for: only these are notified by name when they end. Not logged,
-- since a notification is a hint.
CREATE UNLOGGED TABLE holdfast.waiters (
    tenant text COLLATE "C" NOT NULL,
    id     text COLLATE "C" NOT NULL,
    until  timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Why a job was not created: 'known' (by id or key), 'conflict' (the id is another job's), 'full'
-- (a cap), 'many' (the tenant has too many queues or groups).
CREATE TYPE holdfast.answer AS (
    ord integer, why text, id text, queue text, type text, has bigint, most bigint
);

-- A leased job; `visit` orders the lines that a claim took from.
CREATE TYPE holdfast.lease AS (
    visit integer, tenant text, id text, queue text, type text, codec text, version integer,
    payload bytea, rules text, priority bigint, key text, group_name text, tags text[], origin text,
    seq bigint, attempt integer, fence integer, lapses integer, misses integer, created_at bigint,
    updated_at bigint, run_at bigint, expires_at bigint, lease_until bigint, reason text, error text
);

-- A line that deltas name: what it has by now, whether its tenant counts it as a line with jobs,
-- and what the deltas say of its tenant.
CREATE TYPE holdfast.line_change AS (
    tenant text, queue text, has bigint, was_line boolean, open boolean, turn bigint,
    low_rank bigint, low_seq bigint, came bigint, turned bigint, credit_at bigint, credit bigint
);

-- A tenant that can be claimed from: its place among all tenants, and what is left of a turn that a
-- full claim cut short.
CREATE TYPE holdfast.tenant_turn AS (tenant text, turn bigint, credit bigint);

-- A job that has ended.
CREATE TYPE holdfast.ended AS (
    tenant text, group_name text, id text, queue text, type text, attempt integer, fence integer
);

-- A row of counts that is new, or whose line came up (1) or ran empty (-1).
CREATE TYPE holdfast.count_change AS (
    kind text, tenant text, part text, is_new boolean, lines integer
);

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
