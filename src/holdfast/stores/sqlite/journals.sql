-- The tables of journals and joins: for a new file, and for one that was upgraded.

CREATE TABLE entries (
    seq   INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    name  TEXT    NOT NULL,
    value BLOB    NOT NULL,
    at    INTEGER NOT NULL,
    PRIMARY KEY (seq, kind, name)
);

CREATE TABLE joins (
    seq    INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    total  INTEGER NOT NULL,
    due    INTEGER NOT NULL,
    failed INTEGER NOT NULL DEFAULT 0,
    at     INTEGER NOT NULL,
    PRIMARY KEY (seq, name)
) WITHOUT ROWID;

CREATE TABLE releasing (
    tenant   TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    id       TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    edges    INTEGER NOT NULL,
    followed INTEGER NOT NULL,
    gone     INTEGER NOT NULL,
    PRIMARY KEY (tenant, seq)
) WITHOUT ROWID;

CREATE TABLE leftovers (
    seq    INTEGER PRIMARY KEY,
    weight INTEGER NOT NULL
);
