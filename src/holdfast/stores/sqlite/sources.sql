-- Sources and the rows of their shadows: see layout.py.

CREATE TABLE sources (
    tenant TEXT    NOT NULL,
    source TEXT    NOT NULL,
    stamp  TEXT    NOT NULL,
    state  BLOB    NOT NULL,
    rows   INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    PRIMARY KEY (tenant, source)
) WITHOUT ROWID;

CREATE TABLE shadow (
    tenant  TEXT    NOT NULL,
    source  TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    version TEXT    NOT NULL,
    number  INTEGER NOT NULL,
    seen    INTEGER NOT NULL,
    gone    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    body    BLOB    NOT NULL,
    PRIMARY KEY (tenant, source, id)
);
