-- From format 16, the last one with packs and pieces, to 17. The functions of format 16 are still
-- there when this runs: they turn the jobs of packs and pieces into rows. migrate.py drops them
-- afterwards and creates those of today.

SELECT holdfast.lock_claims();

-- Every job into a row of its own. What a pack has left first, since a piece may use its arrays.
SELECT holdfast.open_packs(ARRAY(SELECT seq FROM holdfast.packs WHERE taken < number));
SELECT holdfast.open_held(ARRAY(
    SELECT m.seq FROM holdfast.pieces p CROSS JOIN LATERAL holdfast.members(p) m
));

-- Every event into a row of its own.
INSERT INTO holdfast.events (
    cursor, at, kind, tenant, job_id, queue, type, attempt, fence, until, note, signed
)
SELECT e.cursor + u.place - 1, e.at, e.kind, e.tenant, u.id, e.queue, e.type, e.attempt, e.fence,
    e.until, e.note, e.signed
FROM holdfast.events e CROSS JOIN LATERAL unnest(e.ids) WITH ORDINALITY AS u(id, place)
WHERE e.ids IS NOT NULL AND u.place > 1;

-- All deltas into the counts, so that none of them has to be moved to the other sequence.
SELECT holdfast.fold(2147483647);
DELETE FROM holdfast.deltas WHERE queue IS NULL;

DROP VIEW holdfast.queue_jobs, holdfast.queue_jobs_dlq, holdfast.job_results, holdfast.living;
DO $$
DECLARE
    old record;
BEGIN
    FOR old IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p
            JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname || '.' = replace('holdfast.', '"', '')
    LOOP
        EXECUTE 'DROP FUNCTION ' || old.name || ' CASCADE';
    END LOOP;
END
$$;
DROP TABLE holdfast.packs, holdfast.pieces;
DROP TYPE holdfast.leased, holdfast.line, holdfast.told, holdfast.turn;

DROP INDEX holdfast.events_many;
ALTER TABLE holdfast.events DROP COLUMN number, DROP COLUMN last_id, DROP COLUMN ids;

-- One sequence for events, deltas and turns.
ALTER TABLE holdfast.deltas ALTER COLUMN id SET DEFAULT nextval('holdfast.cursors');
SELECT setval('holdfast.cursors', greatest(c.last_value + 128, t.last_value))
FROM holdfast.cursors c, holdfast.turns t;
SELECT setval('holdfast.seqs', last_value + 128) FROM holdfast.seqs;
ALTER SEQUENCE holdfast.cursors INCREMENT BY 1;
ALTER SEQUENCE holdfast.seqs INCREMENT BY 1;
DROP SEQUENCE holdfast.turns;

ALTER TABLE holdfast.counts RENAME COLUMN ring TO tenant_turn;
ALTER INDEX holdfast.lines_ring RENAME TO lines_tenant_turn;
ALTER TABLE holdfast.deltas RENAME COLUMN held TO leases_until;
ALTER TABLE holdfast.deltas RENAME COLUMN mark TO refreshed;
DROP INDEX holdfast.deltas_txid;
CREATE INDEX deltas_id ON holdfast.deltas (id);

ALTER TABLE holdfast.heads RENAME TO store_state;
ALTER INDEX holdfast.heads_pkey RENAME TO store_state_pkey;
ALTER TABLE holdfast.store_state RENAME CONSTRAINT heads_one_check TO store_state_one_check;
ALTER TABLE holdfast.store_state RENAME COLUMN mark TO last_refresh;
ALTER TABLE holdfast.store_state RENAME COLUMN held_floor TO leases_floor;
ALTER TABLE holdfast.store_state RENAME COLUMN repeat_floor TO claims_floor;
ALTER TABLE holdfast.store_state DROP COLUMN floor,
    ADD COLUMN deltas_floor bigint NOT NULL DEFAULT 0,
    ADD COLUMN functions text NOT NULL DEFAULT '',
    ADD COLUMN fold_at integer NOT NULL DEFAULT 64;

ALTER TABLE holdfast.ruled RENAME TO tenants_with_settings;
ALTER INDEX holdfast.ruled_pkey RENAME TO tenants_with_settings_pkey;
ALTER TABLE holdfast.crowded RENAME TO full_tenants;
ALTER INDEX holdfast.crowded_pkey RENAME TO full_tenants_pkey;
ALTER TABLE holdfast.reopen RENAME TO reopen_times;
ALTER INDEX holdfast.reopen_pkey RENAME TO reopen_times_pkey;
ALTER INDEX holdfast.reopen_at RENAME TO reopen_times_at;

ALTER TABLE holdfast.leases SET (toast_tuple_target = 8160);
ALTER TABLE holdfast.claims SET (toast_tuple_target = 8160);

-- The next claim reads every scope with settings.
INSERT INTO holdfast.deltas (tenant) SELECT tenant FROM holdfast.tenants_with_settings;

-- A line that deltas name: what it has by now, whether its tenant counts it as a line with jobs,
-- and what the deltas say of its tenant.
CREATE TYPE holdfast.line_change AS (
    tenant text, queue text, has bigint, was_line boolean, open boolean, turn bigint,
    low_rank bigint, low_seq bigint, came bigint, turned bigint, credit_at bigint, credit bigint
);

-- A tenant that can be claimed from: its place among all tenants, and what is left of a turn that a
-- full claim cut short.
CREATE TYPE holdfast.tenant_turn AS (tenant text, turn bigint, credit bigint);

-- A job that has ended.
CREATE TYPE holdfast.ended AS (
    tenant text, group_name text, id text, queue text, type text, attempt integer, fence integer
);

-- A row of counts that is new, or whose line came up (1) or ran empty (-1).
CREATE TYPE holdfast.count_change AS (
    kind text, tenant text, part text, is_new boolean, lines integer
);
