-- The table of edges: for a new file, and for one that was upgraded.

CREATE TABLE edges (
    seq     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    targets TEXT    NOT NULL,
    PRIMARY KEY (seq, number)
) WITHOUT ROWID;
