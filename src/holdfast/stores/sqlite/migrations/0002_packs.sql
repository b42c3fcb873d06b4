-- Jobs that are alike wait in packs. holdfast/stores/sqlite/layout.py draws them and says why.

CREATE TABLE posted (
    n      INTEGER PRIMARY KEY,
    head   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    ids    BLOB    NOT NULL,
    bodies BLOB    NOT NULL
);

CREATE TABLE contents (
    seq    INTEGER PRIMARY KEY,
    head   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    ids    BLOB    NOT NULL,
    ats    BLOB,              -- NULL: all came at `at`
    bodies BLOB    NOT NULL
);

CREATE TABLE packs (
    seq      INTEGER PRIMARY KEY,
    number   INTEGER NOT NULL,
    taken    INTEGER NOT NULL DEFAULT 0,
    left     INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    tenant   TEXT    NOT NULL,
    queue    TEXT    NOT NULL,
    type     TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    loose    INTEGER NOT NULL,
    first_id TEXT    NOT NULL,
    last_id  TEXT    NOT NULL
);

CREATE INDEX packs_line ON packs (queue, tenant, priority DESC, seq) WHERE taken < number;
CREATE INDEX packs_ages ON packs (tenant, queue, at) WHERE taken < number;
CREATE INDEX packs_name ON packs (tenant, loose, last_id, first_id);

CREATE TABLE pieces (
    seq    INTEGER PRIMARY KEY,
    pack   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    token  TEXT    NOT NULL,
    until  INTEGER NOT NULL,
    worker TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    sizes  BLOB    NOT NULL,
    done   BLOB    NOT NULL
);

CREATE INDEX pieces_pack ON pieces (pack);
CREATE INDEX pieces_until ON pieces (until);
