-- From version 3 to 4: the lines with jobs to claim are marked in a column of their own. Their
-- indexes and triggers are made after the last upgrade.

ALTER TABLE heads RENAME TO counters;

DROP INDEX lines_turn;
DROP INDEX lines_ring;
DROP INDEX lines_out;
DROP TRIGGER counts_insert;
DROP TRIGGER counts_line;
DROP TRIGGER counts_slots;
DROP TRIGGER counts_delete;

ALTER TABLE counts ADD COLUMN ready INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counts ADD COLUMN next_turn INTEGER NOT NULL DEFAULT 0;
UPDATE counts SET ready = 1 WHERE kind = 'queue' AND open = 1 AND enqueued > blocked;
