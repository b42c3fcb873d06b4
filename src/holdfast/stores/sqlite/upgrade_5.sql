-- From version 5 to 6: what a job awaits, and whether it has a journal and edges. journals.sql then
-- makes the tables of these, upgrade_6.sql that of edges.

ALTER TABLE jobs ADD COLUMN awaits TEXT;
ALTER TABLE jobs ADD COLUMN journal TEXT;
ALTER TABLE jobs ADD COLUMN edges INTEGER;
