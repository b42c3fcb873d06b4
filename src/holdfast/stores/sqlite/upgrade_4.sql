-- From version 4 to 5: what waits at the limits of the platform, and what rests by the values of
-- tiers. lines.sql then makes the indexes and triggers of lines. A file that was upgraded from version
-- 3 has none of them here.

DROP INDEX IF EXISTS lines_turn;
DROP INDEX IF EXISTS lines_ring;
DROP INDEX IF EXISTS lines_out;
DROP TRIGGER IF EXISTS counts_insert;
DROP TRIGGER IF EXISTS counts_line;
DROP TRIGGER IF EXISTS counts_slots;
DROP TRIGGER IF EXISTS counts_delete;

ALTER TABLE counts ADD COLUMN aside INTEGER NOT NULL DEFAULT 0;

CREATE INDEX jobs_aside ON jobs (queue, tenant, type, priority DESC, seq)
    WHERE state = 'enqueued' AND late = 0 AND gate = 2;

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

ALTER TABLE counts ADD COLUMN resting TEXT;
ALTER TABLE counts ADD COLUMN looked INTEGER NOT NULL DEFAULT 0;

CREATE INDEX counts_resting ON counts (resting, kind, looked) WHERE resting IS NOT NULL;
CREATE INDEX counts_looked ON counts (tenant, looked) WHERE resting IS NOT NULL;

ALTER TABLE buckets ADD COLUMN rated INTEGER NOT NULL DEFAULT 0;

ALTER TABLE settings ADD COLUMN tier TEXT;
ALTER TABLE settings ADD COLUMN changed INTEGER;
ALTER TABLE settings ADD COLUMN at INTEGER;

CREATE INDEX settings_tier ON settings (tier) WHERE tier IS NOT NULL;
