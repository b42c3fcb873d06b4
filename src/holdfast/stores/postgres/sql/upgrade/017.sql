-- From format 17 to 18: ready and due jobs are found by indexes of `jobs`, not in tables of their
-- own.

SELECT pg_advisory_xact_lock(hashtext('holdfast.claims'), 0);

UPDATE holdfast.jobs SET gate = 2 WHERE state IN ('scheduled', 'retrying');
DROP TABLE holdfast.ready, holdfast.due;
CREATE INDEX jobs_line ON holdfast.jobs (queue, tenant, (-priority), seq)
    WHERE gate = 0 AND late = 0;
CREATE INDEX jobs_group ON holdfast.jobs (tenant, group_name, gate, queue, (-priority), seq)
    WHERE group_name IS NOT NULL AND late = 0;
CREATE INDEX jobs_due ON holdfast.jobs (run_at) WHERE gate = 2 AND late = 0;
CREATE INDEX jobs_ages ON holdfast.jobs (tenant, queue, run_at) WHERE gate < 2;
ALTER TABLE holdfast.jobs SET (fillfactor = 42);
