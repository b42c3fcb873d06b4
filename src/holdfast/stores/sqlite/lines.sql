-- The indexes of lines and the triggers of counts: for a new file, and for one that was upgraded.

CREATE INDEX lines_turn ON counts (tenant, turn)
    WHERE kind = 'queue' AND ready = 1;
CREATE INDEX lines_ring ON counts (part, ring)
    WHERE kind = 'queue' AND ready = 1 AND ring > 0;
CREATE INDEX lines_out ON counts (tenant)
    WHERE kind = 'queue' AND ready = 1 AND ring = 0;

CREATE TRIGGER counts_insert AFTER INSERT ON counts
WHEN (NEW.kind <> 'tenant' OR NEW.slots <> 0) AND NEW.tenant <> ''
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
    UPDATE counts SET ready = 1, ring = (
        SELECT whole.turn FROM counts AS whole
        WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
    )
    WHERE kind = NEW.kind AND tenant = NEW.tenant AND part = NEW.part
    AND kind = 'queue' AND open = 1 AND enqueued > blocked;
END;

CREATE TRIGGER counts_line AFTER UPDATE OF next_turn, open, aside ON counts
WHEN NEW.kind = 'queue'
AND NEW.ready <> (NEW.open = 1 AND NEW.aside = 0 AND NEW.enqueued > NEW.blocked)
BEGIN
    UPDATE counts SET
        turn = CASE WHEN line_count = 0 THEN NEW.next_turn ELSE turn END,
        line_count = line_count + CASE WHEN NEW.ready = 0 THEN 1 ELSE -1 END
    WHERE kind = 'tenant' AND tenant = NEW.tenant AND part = '';
    UPDATE counts SET
        ready = 1 - NEW.ready,
        turn = CASE WHEN NEW.ready = 0 THEN NEW.next_turn ELSE turn END,
        ring = CASE WHEN NEW.ready = 0 THEN (
            SELECT whole.turn FROM counts AS whole
            WHERE whole.kind = 'tenant' AND whole.tenant = NEW.tenant AND whole.part = ''
        ) ELSE ring END
    WHERE kind = 'queue' AND tenant = NEW.tenant AND part = NEW.part;
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
        line_count = line_count - OLD.ready
    WHERE kind = 'tenant' AND tenant = OLD.tenant AND part = '';
END;
