-- From version 6 to 7: the joins of parents are in the rows of their jobs, and many edges in one row.
-- edges.sql then makes the new table of edges, which upgrade_6_edges.sql fills.

ALTER TABLE jobs ADD COLUMN parents INTEGER;
ALTER TABLE jobs ADD COLUMN parents_due INTEGER;
ALTER TABLE jobs ADD COLUMN parents_failed INTEGER;

UPDATE jobs SET parents = joins.total, parents_due = joins.due, parents_failed = joins.failed
    FROM joins WHERE joins.seq = jobs.seq AND joins.name = '';
DELETE FROM joins WHERE name = '';

-- A file that was upgraded from version 5 has no table of edges yet.
CREATE TABLE IF NOT EXISTS edges (
    seq        INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    target     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    on_failure TEXT    NOT NULL,
    PRIMARY KEY (seq, number)
) WITHOUT ROWID;
ALTER TABLE edges RENAME TO edges_6;
