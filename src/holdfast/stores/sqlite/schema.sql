-- The tables of the SQLite store; journals.sql and lines.sql add to them. layout.py says what each
-- part is for.

CREATE TABLE jobs (
    seq          INTEGER PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    codec        TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    state        TEXT    NOT NULL,
    late         INTEGER NOT NULL DEFAULT 0,
    gate         INTEGER NOT NULL DEFAULT 0,
    priority     INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    fence        INTEGER NOT NULL DEFAULT 0,
    lapses       INTEGER NOT NULL DEFAULT 0,
    misses       INTEGER NOT NULL DEFAULT 0,
    token        TEXT,
    lease_until  INTEGER,
    worker       TEXT,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    finished_at  INTEGER,
    keep_us      INTEGER NOT NULL,
    keep_until   INTEGER,
    key          TEXT,
    group_name   TEXT,
    tags         TEXT,
    origin       TEXT,
    replayed_as  TEXT,
    rules        TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    awaits       TEXT,
    journal      TEXT,
    edges        INTEGER,
    parents        INTEGER,
    parents_due    INTEGER,
    parents_failed INTEGER,
    reason       TEXT,
    error        TEXT,
    progress     TEXT,
    result       BLOB,
    payload      BLOB
);

CREATE UNIQUE INDEX jobs_name ON jobs (tenant, id);
CREATE INDEX jobs_tenant ON jobs (tenant);
CREATE INDEX jobs_group ON jobs (tenant, group_name) WHERE group_name IS NOT NULL;
CREATE INDEX jobs_key ON jobs (tenant, key) WHERE key IS NOT NULL;

CREATE INDEX jobs_ready ON jobs (queue, tenant, priority DESC, seq)
    WHERE state = 'enqueued' AND late = 0 AND gate = 0;
CREATE INDEX jobs_gated ON jobs (tenant, group_name, gate, queue, priority DESC, seq)
    WHERE group_name IS NOT NULL AND state = 'enqueued' AND late = 0;
CREATE INDEX jobs_aside ON jobs (queue, tenant, type, priority DESC, seq)
    WHERE state = 'enqueued' AND late = 0 AND gate = 2;
CREATE INDEX jobs_order ON jobs (tenant, group_name, seq)
    WHERE group_name IS NOT NULL
    AND state IN ('waiting', 'scheduled', 'enqueued', 'processing', 'retrying');
CREATE INDEX jobs_ages ON jobs (tenant, queue, run_at) WHERE state = 'enqueued';
CREATE INDEX jobs_due ON jobs (run_at, tenant, queue, state, group_name)
    WHERE state IN ('scheduled', 'retrying') AND late = 0;
CREATE INDEX jobs_held ON jobs (lease_until)
    WHERE state = 'processing' AND attempt < max_attempts;
CREATE INDEX jobs_spent ON jobs (lease_until)
    WHERE state = 'processing' AND attempt >= max_attempts;
CREATE INDEX jobs_ttl ON jobs (late, expires_at)
    WHERE expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying');
CREATE INDEX jobs_dead ON jobs (tenant) WHERE state = 'failed';
CREATE INDEX jobs_done ON jobs (keep_until) WHERE keep_until IS NOT NULL;

CREATE TABLE bodies (
    seq     INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);

CREATE TABLE counts (
    kind        TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    part        TEXT    NOT NULL,
    waiting     INTEGER NOT NULL DEFAULT 0,
    scheduled   INTEGER NOT NULL DEFAULT 0,
    enqueued    INTEGER NOT NULL DEFAULT 0,
    processing  INTEGER NOT NULL DEFAULT 0,
    retrying    INTEGER NOT NULL DEFAULT 0,
    completed   INTEGER NOT NULL DEFAULT 0,
    failed      INTEGER NOT NULL DEFAULT 0,
    canceled    INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    blocked     INTEGER NOT NULL DEFAULT 0,
    slots       INTEGER NOT NULL DEFAULT 0,
    open        INTEGER NOT NULL DEFAULT 1,
    turn        INTEGER NOT NULL DEFAULT 0,
    ring        INTEGER NOT NULL DEFAULT 0,
    line_count  INTEGER NOT NULL DEFAULT 0,
    queue_count INTEGER NOT NULL DEFAULT 0,
    group_count INTEGER NOT NULL DEFAULT 0,
    slot_count  INTEGER NOT NULL DEFAULT 0,
    ready       INTEGER NOT NULL DEFAULT 0,
    next_turn   INTEGER NOT NULL DEFAULT 0,
    aside       INTEGER NOT NULL DEFAULT 0,
    resting     TEXT,
    looked      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;

CREATE INDEX tenants_turn ON counts (turn)
    WHERE kind = 'tenant' AND open = 1 AND line_count > 0;
CREATE INDEX counts_idle ON counts (tenant, kind)
    WHERE waiting + scheduled + enqueued + processing + retrying = 0
    AND completed + failed + canceled + slots + queue_count + group_count = 0;
CREATE INDEX counts_resting ON counts (resting, kind, looked) WHERE resting IS NOT NULL;
CREATE INDEX counts_looked ON counts (tenant, looked) WHERE resting IS NOT NULL;

CREATE TABLE aside (
    kind   TEXT    NOT NULL,
    part   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    turn   INTEGER NOT NULL,
    seen   INTEGER NOT NULL,
    PRIMARY KEY (kind, part, tenant, queue)
) WITHOUT ROWID;

CREATE INDEX aside_turn ON aside (kind, part, queue, turn);
CREATE INDEX aside_line ON aside (kind, part, tenant, seen) WHERE queue > '';

CREATE TABLE buckets (
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    part    TEXT    NOT NULL,
    full_at INTEGER NOT NULL,
    rated   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;

CREATE INDEX buckets_full ON buckets (full_at);

CREATE TABLE reopen (
    kind   TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    part   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (kind, tenant, part)
) WITHOUT ROWID;

CREATE INDEX reopen_at ON reopen (at);

CREATE TABLE claims (
    nonce TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    seqs  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX claims_until ON claims (until);

CREATE TABLE keys (
    tenant TEXT NOT NULL,
    queue  TEXT NOT NULL,
    type   TEXT NOT NULL,
    key    TEXT NOT NULL,
    id     TEXT NOT NULL,
    until  INTEGER,
    PRIMARY KEY (tenant, queue, type, key)
) WITHOUT ROWID;

CREATE INDEX keys_until ON keys (until) WHERE until IS NOT NULL;

CREATE TABLE events (
    cursor  INTEGER PRIMARY KEY,
    number  INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    tenant  TEXT    NOT NULL,
    queue   TEXT    NOT NULL,
    type    TEXT    NOT NULL,
    attempt INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    until   INTEGER,
    note    TEXT,
    ids     TEXT    NOT NULL,
    signed  TEXT
);

CREATE INDEX events_tenant ON events (tenant);

CREATE TABLE counters (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    seq          INTEGER NOT NULL,
    cursor       INTEGER NOT NULL,
    events_floor INTEGER NOT NULL,
    scopes       INTEGER NOT NULL,
    turn         INTEGER NOT NULL
);

INSERT INTO counters VALUES (1, 0, 0, 0, 0, 0);

CREATE TABLE settings (
    name    TEXT PRIMARY KEY,
    value   BLOB,              -- NULL: deleted; the row keeps its version from being used again
    version INTEGER NOT NULL,
    stamp   INTEGER,           -- of a scope or a tier: the value of counters.scopes when it was put
    tier    TEXT,              -- of a tenant: the tier that it is in
    changed INTEGER,           -- of a tier: the stamp when its rates changed; of a tenant: its tier
    at      INTEGER            -- the instant of that change
) WITHOUT ROWID;

CREATE INDEX settings_stamp ON settings (stamp) WHERE stamp IS NOT NULL;
CREATE INDEX settings_tier ON settings (tier) WHERE tier IS NOT NULL;

CREATE TABLE holds (
    name   TEXT PRIMARY KEY,
    owner  TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    note   TEXT    NOT NULL,
    scope  TEXT,               -- of a slot: what the names of its scope's slots start with
    tenant TEXT                -- of a slot: the tenant of its scope
) WITHOUT ROWID;

CREATE INDEX holds_until ON holds (until);
CREATE INDEX holds_slots ON holds (scope, until) WHERE scope IS NOT NULL;
CREATE INDEX holds_tenant ON holds (tenant, until) WHERE tenant IS NOT NULL;
