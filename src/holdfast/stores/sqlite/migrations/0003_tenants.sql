-- Tenants take turns before their queues, claims are known by their nonce, events are signed.
-- Packs have become rows (`unpacking.py`), and what was counted is counted anew (`migrate.py`).

ALTER TABLE counts ADD COLUMN ring INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counts ADD COLUMN line_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counts ADD COLUMN queue_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counts ADD COLUMN group_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counts ADD COLUMN slot_count INTEGER NOT NULL DEFAULT 0;

DROP INDEX lines_turn;
DROP INDEX lines_open;
DROP INDEX counts_idle;

CREATE INDEX tenants_turn ON counts (turn)
    WHERE kind = 'tenant' AND open = 1 AND line_count > 0;
CREATE INDEX lines_turn ON counts (tenant, turn)
    WHERE kind = 'queue' AND open = 1 AND enqueued > blocked;
CREATE INDEX lines_ring ON counts (part, ring)
    WHERE kind = 'queue' AND open = 1 AND enqueued > blocked AND ring > 0;
CREATE INDEX lines_out ON counts (tenant)
    WHERE kind = 'queue' AND open = 1 AND enqueued > blocked AND ring = 0;
CREATE INDEX counts_idle ON counts (tenant, kind)
    WHERE waiting + scheduled + enqueued + processing + retrying = 0
    AND completed + failed + canceled + slots + queue_count + group_count = 0;

CREATE TRIGGER counts_insert AFTER INSERT ON counts
WHEN NEW.kind <> 'tenant' OR NEW.slots <> 0
BEGIN
    INSERT INTO counts
        (kind, tenant, part, turn, queue_count, group_count, slot_count, line_count)
    VALUES (
        'tenant', NEW.tenant, '', NEW.turn, NEW.kind = 'queue', NEW.kind = 'group', NEW.slots,
        NEW.kind = 'queue' AND NEW.open = 1 AND NEW.enqueued > NEW.blocked
    )
    ON CONFLICT (kind, tenant, part) DO UPDATE SET
        turn = CASE WHEN line_count = 0 AND excluded.line_count = 1
            THEN excluded.turn ELSE turn END,
        queue_count = queue_count + excluded.queue_count,
        group_count = group_count + excluded.group_count,
        slot_count = slot_count + excluded.slot_count,
        line_count = line_count + excluded.line_count;
    UPDATE counts SET ring = (
        SELECT whole.turn FROM counts AS whole
        WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
    )
    WHERE kind = NEW.kind AND tenant = NEW.tenant AND part = NEW.part
    AND kind = 'queue' AND open = 1 AND enqueued > blocked;
END;

CREATE TRIGGER counts_line AFTER UPDATE OF enqueued, blocked, open ON counts
WHEN NEW.kind = 'queue'
AND (NEW.open = 1 AND NEW.enqueued > NEW.blocked) <> (OLD.open = 1 AND OLD.enqueued > OLD.blocked)
BEGIN
    UPDATE counts SET
        turn = CASE WHEN line_count = 0 THEN NEW.turn ELSE turn END,
        line_count = line_count
            + CASE WHEN NEW.open = 1 AND NEW.enqueued > NEW.blocked THEN 1 ELSE -1 END
    WHERE kind = 'tenant' AND tenant = NEW.tenant AND part = '';
    UPDATE counts SET ring = (
        SELECT whole.turn FROM counts AS whole
        WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
    )
    WHERE kind = 'queue' AND tenant = NEW.tenant AND part = NEW.part
    AND open = 1 AND enqueued > blocked;
END;

CREATE TRIGGER counts_slots AFTER UPDATE OF slots ON counts
WHEN NEW.slots <> OLD.slots
BEGIN
    UPDATE counts SET slot_count = slot_count + NEW.slots - OLD.slots
    WHERE kind = 'tenant' AND tenant = NEW.tenant AND part = '';
END;

CREATE TRIGGER counts_delete AFTER DELETE ON counts
WHEN OLD.kind <> 'tenant'
BEGIN
    UPDATE counts SET
        queue_count = queue_count - (OLD.kind = 'queue'),
        group_count = group_count - (OLD.kind = 'group'),
        slot_count = slot_count - OLD.slots,
        line_count = line_count
            - (OLD.kind = 'queue' AND OLD.open = 1 AND OLD.enqueued > OLD.blocked)
    WHERE kind = 'tenant' AND tenant = OLD.tenant AND part = '';
END;

CREATE TABLE claims (
    nonce TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    seqs  TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX claims_until ON claims (until);

ALTER TABLE events ADD COLUMN signed TEXT;

ALTER TABLE holds ADD COLUMN tenant TEXT;
CREATE INDEX holds_tenant ON holds (tenant, until) WHERE tenant IS NOT NULL;
