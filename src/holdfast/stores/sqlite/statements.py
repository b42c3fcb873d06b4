"""Every statement of the SQLite store, by name. Where each index serves is drawn in `layout.py`.

A partial index is used only by a query that repeats its condition word for word; the conditions
below are therefore written once.
"""

from __future__ import annotations

# Conditions of the partial indexes.
READY = "state = 'enqueued' AND late = 0"
DUE = "state IN ('scheduled', 'retrying') AND late = 0"
HELD = "state = 'processing' AND attempt < max_attempts"
SPENT = "state = 'processing' AND attempt >= max_attempts"
WAITING = "state = 'waiting' AND late = 0"
WITH_TTL = "expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying')"

# What `rows.record` reads, in its order.
RECORD = (
    "tenant, id, queue, type, codec, version,"
    " coalesce(payload, (SELECT bodies.payload FROM bodies WHERE bodies.seq = jobs.seq)),"
    " rules, priority, key, group_name, tags, origin, seq, state, attempt, fence, lapses, misses,"
    " created_at, updated_at, run_at, expires_at, lease_until, worker, finished_at, reason, error,"
    " result, progress, replayed_as"
)

# What `rows.Row` reads, in its order.
ROW = (
    "seq, tenant, id, queue, type, key, rules, state, priority, run_at, attempt, max_attempts,"
    " fence, lapses, misses, token, lease_until, expires_at, finished_at, reason, error, progress"
)

# -- heads and events ------------------------------------------------------------------------------

HEADS = "SELECT seq, cursor FROM heads"
HEADS_SAVE = "UPDATE heads SET seq = ?, cursor = ?"
FINISHED_ADD = (
    "INSERT INTO finished (tenant, queue, state, jobs) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (tenant, queue, state) DO UPDATE SET jobs = jobs + excluded.jobs"
)
FINISHED_CLEAR = "DELETE FROM finished WHERE jobs <= 0"
EVENT_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

# -- enqueue ---------------------------------------------------------------------------------------

_NEW = (
    "seq, tenant, id, queue, type, codec, version, state, priority, run_at, max_attempts,"
    " created_at, updated_at, expires_at, keep_us, key, group_name, tags, origin, rules, payload"
)
INSERT = (
    f"INSERT INTO jobs ({_NEW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
    " ?, ?) ON CONFLICT (tenant, id) DO NOTHING"
)
BODY_INSERT = "INSERT INTO bodies (seq, payload) VALUES (?, ?)"
NAMED = "SELECT queue, type FROM jobs WHERE tenant = ? AND id = ?"
# The id may have been pruned and used again, for a job without this key.
_KEY_JOB = (
    "LEFT JOIN jobs ON jobs.tenant = keys.tenant AND jobs.id = keys.id"
    " AND jobs.queue = keys.queue AND jobs.type = keys.type AND jobs.key = keys.key"
)
KEY_HOLDER = (
    f"SELECT keys.id, keys.until, jobs.state FROM keys {_KEY_JOB}"
    " WHERE keys.tenant = ? AND keys.queue = ? AND keys.type = ? AND keys.key = ?"
)
KEY_TAKE = (
    "INSERT INTO keys (tenant, queue, type, key, id, until) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (tenant, queue, type, key)"
    " DO UPDATE SET id = excluded.id, until = excluded.until"
)
KEY_RELEASE = (
    "DELETE FROM keys WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
    " AND id = ? AND coalesce(until, 0) <= ?"
)

# -- claim -----------------------------------------------------------------------------------------

PROMOTE = (
    "UPDATE jobs SET state = 'enqueued' WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {DUE} AND run_at <= ? ORDER BY run_at LIMIT ?)"
)
RESCUE = (
    "UPDATE jobs SET state = 'enqueued', lapses = lapses + 1, updated_at = ? WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {HELD} AND lease_until <= ? ORDER BY lease_until LIMIT ?)"
    " RETURNING lease_until, seq, tenant, id, queue, type, attempt, fence"
)
# Jobs past their time to live leave the order: upkeep fails them, no claim walks over them.
RETIRE = (
    "UPDATE jobs SET late = 1 WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {WITH_TTL} AND late = 0 AND expires_at <= ? LIMIT ?)"
)
TAKE = (
    "UPDATE jobs SET state = 'processing', attempt = attempt + 1, fence = fence + 1,"
    " token = ? || seq, lease_until = ?, worker = ?, updated_at = ?, progress = NULL"
    " WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {READY} AND queue = ? AND tenant = ?"
    " AND (expires_at IS NULL OR expires_at > ?) ORDER BY priority DESC, seq LIMIT ?)"
    f" RETURNING token, {RECORD}"
)

# Steps from line to line without touching the jobs between (a loose index scan).
QUEUE_FROM = f"SELECT queue FROM jobs WHERE {READY} AND queue >= ? ORDER BY queue LIMIT 1"
QUEUE_AFTER = f"SELECT queue FROM jobs WHERE {READY} AND queue > ? ORDER BY queue LIMIT 1"
TENANT_AFTER = (
    f"SELECT tenant FROM jobs WHERE {READY} AND queue = ? AND tenant > ? ORDER BY tenant LIMIT 1"
)
LINE_READY = f"SELECT 1 FROM jobs WHERE {READY} AND queue = ? AND tenant = ? LIMIT 1"

NEXT_DUE = f"SELECT run_at FROM jobs WHERE {DUE} ORDER BY run_at LIMIT 1"
NEXT_LAPSE = f"SELECT lease_until FROM jobs WHERE {HELD} ORDER BY lease_until LIMIT 1"

# -- extend, ack, cancel, change -------------------------------------------------------------------

# A plain completion, nearly every ack, in two statements for a whole batch. The condition is all of
# lifecycle.refusal but the token; where it does not hold, the rules look at the row and say why.
# (Not one UPDATE ... RETURNING each: the table that RETURNING makes costs as much as the update.)
COMPLETING = (
    "SELECT seq, tenant, id, token, queue, type, attempt, fence, key, keep_us FROM jobs"
    " WHERE seq IN ({marks}) AND state = 'processing' AND lease_until > ?"
)
COMPLETE = (
    "UPDATE jobs SET state = 'completed', token = NULL, reason = NULL, result = ?,"
    " updated_at = ?, finished_at = ?, keep_until = ? WHERE seq = ?"
)
LOOK = f"SELECT {ROW} FROM jobs WHERE tenant = ? AND id = ?"
SAVE = (
    "UPDATE jobs SET state = ?, priority = ?, run_at = ?, attempt = ?, lapses = ?, misses = ?,"
    " token = ?, lease_until = ?, reason = ?, error = ?, progress = ?, result = ?,"
    " updated_at = ?, finished_at = ?, keep_until = ? WHERE seq = ?"
)
REMOVE = "DELETE FROM jobs WHERE seq = ?"
REPLAY = (
    f"INSERT INTO jobs ({_NEW})"
    " SELECT ?, tenant, ?, queue, type, codec, version, 'enqueued', priority, ?, max_attempts,"
    " ?, ?, ? + expires_at - created_at, keep_us, NULL, group_name, tags, id, rules, payload"
    " FROM jobs WHERE seq = ?"
    " ON CONFLICT (tenant, id) DO NOTHING"
)
REPLAY_BODY = "INSERT INTO bodies SELECT ?, payload FROM bodies WHERE seq = ?"
REPLAYED = "UPDATE jobs SET replayed_as = ? WHERE seq = ?"

# -- upkeep ----------------------------------------------------------------------------------------

LAPSED = tuple(
    f"SELECT lease_until, token, {RECORD} FROM jobs WHERE {place} AND lease_until <= ?"
    " ORDER BY lease_until, seq LIMIT ?"
    for place in (SPENT, HELD)
)
OUTLIVED = tuple(
    f"SELECT expires_at, NULL, {RECORD} FROM jobs WHERE {WITH_TTL} AND late = {late}"
    " AND expires_at <= ? ORDER BY expires_at, seq LIMIT ?"
    for late in (1, 0)
)
PRUNE_JOBS = (
    "DELETE FROM jobs WHERE seq IN (SELECT seq FROM jobs"
    " WHERE keep_until IS NOT NULL AND keep_until <= ? ORDER BY keep_until LIMIT ?)"
    " RETURNING tenant, queue, type, key, id, state"
)
PAST_KEYS = (
    f"SELECT keys.tenant, keys.queue, keys.type, keys.key, jobs.state FROM keys {_KEY_JOB}"
    " WHERE keys.until IS NOT NULL AND keys.until <= ? ORDER BY keys.until LIMIT ?"
)
KEY_DROP = "DELETE FROM keys WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
# From its instant on, the key of a job that still runs is held by the job alone.
KEY_UNTIMED = "UPDATE keys SET until = NULL WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
# The log is in order of time, so its head is its past; `at` needs no index.
PRUNE_EVENTS_TO = (
    "SELECT max(cursor), count(*) FROM"
    " (SELECT cursor, at FROM events ORDER BY cursor LIMIT ?) WHERE at <= ?"
)
PRUNE_EVENTS = "DELETE FROM events WHERE cursor <= ?"
FLOOR_SAVE = "UPDATE heads SET events_floor = ?"
PRUNE_HOLDS = "DELETE FROM holds WHERE name IN (SELECT name FROM holds WHERE until <= ? LIMIT ?)"

# -- sight -----------------------------------------------------------------------------------------

EVENT_HEADS = "SELECT cursor, events_floor FROM heads"
STATE_OF = "SELECT state FROM jobs WHERE tenant = ? AND id = ?"
# Jobs that are not finished, by where they stand; each job is in one of these.
COUNT_LINE = f"SELECT count(*), min(run_at) FROM jobs WHERE {READY} AND queue = ? AND tenant = ?"
COUNT_OTHERS = tuple(
    f"SELECT tenant, queue, state, run_at <= ?1, count(*), min(run_at) FROM jobs INDEXED BY {index}"
    f" WHERE {place} AND (?2 IS NULL OR tenant = ?2) GROUP BY tenant, queue, state, run_at <= ?1"
    for index, place in (
        ("jobs_due", DUE),
        ("jobs_held", HELD),
        ("jobs_spent", SPENT),
        ("jobs_waiting", WAITING),
        ("jobs_ttl", f"{WITH_TTL} AND late = 1"),
    )
)
COUNT_FINISHED = (
    "SELECT tenant, queue, state, 0, jobs, 0 FROM finished"
    " WHERE jobs > 0 AND (?2 IS NULL OR tenant = ?2) AND ?1 IS NOT NULL"
)

# -- names -----------------------------------------------------------------------------------------

SETTING = "SELECT name, value, version FROM settings WHERE name = ?"
SETTING_PUT = (
    "INSERT INTO settings (name, value, version) VALUES (?, ?, ?)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version"
)
SETTINGS_UNDER = (
    "SELECT name, value, version FROM settings WHERE value IS NOT NULL"
    " AND name >= ?1 AND substr(name, 1, length(?1)) = ?1 ORDER BY name"
)
HOLD = "SELECT name, owner, until, note FROM holds WHERE name = ?"
HOLD_PUT = (
    "INSERT INTO holds (name, owner, until, note) VALUES (?, ?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET owner = excluded.owner, until = excluded.until, note = excluded.note"
)
HOLD_DROP = "DELETE FROM holds WHERE name = ?"
HOLDS_UNDER = (
    "SELECT name, owner, until, note FROM holds"
    " WHERE name >= ?1 AND substr(name, 1, length(?1)) = ?1 AND until > ?2 ORDER BY name"
)
