-- The views for callers that use SQL. Replaced with the functions, so they keep what was granted on
-- them.

-- Jobs that wait or run, and those that were completed or canceled while their record is kept. An
-- INSERT is an enqueue: tenant, job_type and payload are all it needs.
CREATE OR REPLACE VIEW holdfast.queue_jobs AS
SELECT j.tenant, j.id, j.queue, j.type AS job_type, holdfast.as_json(j.codec, j.payload) AS payload,
    CASE j.state WHEN 'processing' THEN 'processing' ELSE 'pending' END AS status, j.state,
    j.priority, j.attempt AS attempts, j.max_attempts, j.key AS idempotency_key, j.group_name,
    holdfast.to_time(j.run_at) AS run_at,
    CASE WHEN j.state = 'processing' THEN holdfast.to_time(j.updated_at) END AS heartbeat_at,
    j.worker, j.error AS last_error, holdfast.to_time(j.created_at) AS created_at,
    NULL::timestamptz AS finished_at
FROM holdfast.jobs j
UNION ALL
SELECT h.tenant, h.id, h.queue, h.type, holdfast.as_json(h.codec, h.payload), h.state, h.state,
    h.priority, h.attempt, h.max_attempts, h.key, h.group_name, holdfast.to_time(h.run_at), NULL,
    NULL, h.error, holdfast.to_time(h.created_at), holdfast.to_time(h.finished_at)
FROM holdfast.history h WHERE h.state <> 'failed';

DROP TRIGGER IF EXISTS queue_jobs_insert ON holdfast.queue_jobs;
CREATE TRIGGER queue_jobs_insert INSTEAD OF INSERT ON holdfast.queue_jobs
FOR EACH ROW EXECUTE FUNCTION holdfast.queue_jobs_insert();

-- The dead letters.
CREATE OR REPLACE VIEW holdfast.queue_jobs_dlq AS
SELECT h.tenant, h.id, h.queue, h.type AS job_type, holdfast.as_json(h.codec, h.payload) AS payload,
    h.reason, h.error, h.priority, h.attempt AS attempts, h.max_attempts, h.replayed_as,
    holdfast.to_time(h.created_at) AS created_at, holdfast.to_time(h.finished_at) AS failed_at
FROM holdfast.history h WHERE h.state = 'failed';

-- What completed jobs returned, while their records are kept.
CREATE OR REPLACE VIEW holdfast.job_results AS
SELECT h.tenant, h.id, h.queue, h.type AS job_type, holdfast.as_json(h.codec, h.result) AS result,
    h.attempt AS attempts, holdfast.to_time(h.created_at) AS created_at,
    holdfast.to_time(h.finished_at) AS finished_at
FROM holdfast.history h WHERE h.state = 'completed';
