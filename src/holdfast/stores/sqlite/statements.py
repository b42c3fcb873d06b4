"""The statements of jobs and events, by name. `layout.py` says which index serves what.

A partial index is used only by a query that repeats its condition word for word; the conditions
below are therefore written once.
"""

from __future__ import annotations

from holdfast.stores.sqlite.bulk import Update

# Conditions of the partial indexes.
READY = "state = 'enqueued' AND late = 0 AND gate = 0"
ASIDE = "state = 'enqueued' AND late = 0 AND gate = 2"
GATED = "group_name IS NOT NULL AND state = 'enqueued' AND late = 0"
IN_ORDER = (
    "group_name IS NOT NULL"
    " AND state IN ('waiting', 'scheduled', 'enqueued', 'processing', 'retrying')"
)
DUE = "state IN ('scheduled', 'retrying') AND late = 0"
HELD = "state = 'processing' AND attempt < max_attempts"
SPENT = "state = 'processing' AND attempt >= max_attempts"
IDLE = (
    "waiting + scheduled + enqueued + processing + retrying = 0"
    " AND completed + failed + canceled + slots + queue_count + group_count = 0"
)
WITH_TTL = "expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying')"

# One statement for many jobs: `bulk.listed` gives the value.
_LISTED = "seq IN (SELECT value FROM json_each(?))"

# The join of the parents of a job: [total, due, failed]; NULL for none. What is no number is no
# JSON either.
_PARENTS = (
    "'[' || quote(parents) || ',' || quote(parents_due) || ',' || quote(parents_failed) || ']'"
)
_PARENTS = f"CASE WHEN parents IS NOT NULL THEN {_PARENTS} END"

_PAYLOAD = "coalesce(payload, (SELECT bodies.payload FROM bodies WHERE bodies.seq = jobs.seq))"

# What `rows.record` reads, in its order.
RECORD = (
    f"tenant, id, queue, type, codec, version, {_PAYLOAD}, rules, priority, key, group_name, tags,"
    " origin, seq, state, attempt, fence, lapses, misses,"
    " created_at, updated_at, run_at, expires_at, lease_until, worker, finished_at, reason, error,"
    " result, progress, replayed_as, awaits"
)

# What `rows.claimed` reads, in its order: the rest of the record a claim knows.
CLAIMED = (
    f"id, type, codec, version, {_PAYLOAD}, rules, priority, key, group_name, tags, origin, seq,"
    " attempt, fence, lapses, misses, created_at, run_at, expires_at, reason, error, journal,"
    f" {_PARENTS}"
)

# What `rows.Row` reads, in its order.
ROW = (
    "seq, tenant, id, queue, type, key, rules, state, priority, run_at, attempt, max_attempts,"
    " fence, lapses, misses, token, lease_until, expires_at, finished_at, reason, error, progress,"
    " group_name, size, late, gate, awaits, journal, edges"
)

# -- counters and events ---------------------------------------------------------------------------

COUNTERS = "SELECT seq, cursor, scopes, turn FROM counters"
COUNTERS_SAVE = "UPDATE counters SET seq = ?, cursor = ?, scopes = ?, turn = ?"
RUN = "cursor, number, ids, at, kind, tenant, queue, type, attempt, fence, until, note, signed"
EVENT_INSERT = f"INSERT INTO events ({RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

# -- enqueue ---------------------------------------------------------------------------------------

_NEW = (
    "seq, tenant, id, queue, type, codec, version, state, priority, run_at, max_attempts,"
    " created_at, updated_at, expires_at, keep_us, key, group_name, tags, origin, rules, payload,"
    " size, gate"
)
_NEW_IN_FLOW = f"{_NEW}, awaits, journal, edges, parents, parents_due, parents_failed"
INSERT, INSERT_IN_FLOW = (
    f"INSERT INTO jobs ({columns}) VALUES (?{', ?' * columns.count(',')})"
    " ON CONFLICT (tenant, id) DO NOTHING"
    for columns in (_NEW, _NEW_IN_FLOW)
)
SEQS_FROM = "SELECT seq FROM jobs WHERE seq >= ?"
BODY_INSERT = "INSERT INTO bodies (seq, payload) VALUES (?, ?)"
QUEUE_AND_TYPE = "SELECT queue, type FROM jobs WHERE tenant = ? AND id = ?"
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

PROMOTABLE = (
    f"SELECT seq, tenant, queue, group_name, state FROM jobs WHERE {DUE} AND run_at <= ?"
    " ORDER BY run_at LIMIT ?"
)
PROMOTE = "UPDATE jobs SET state = 'enqueued', gate = ? WHERE seq = ?"
RESCUE = (
    "UPDATE jobs SET state = 'enqueued', lapses = lapses + 1, updated_at = ? WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {HELD} AND lease_until <= ? ORDER BY lease_until LIMIT ?)"
    " RETURNING lease_until, seq, tenant, id, queue, type, attempt, fence, group_name"
)
# Jobs past their time to live leave the index of ready jobs: upkeep fails them.
RETIRE = (
    "UPDATE jobs SET late = 1 WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {WITH_TTL} AND late = 0 AND expires_at <= ? LIMIT ?)"
    " RETURNING tenant, queue, group_name, state, gate"
)
# A query reads the jobs before: RETURNING would copy every row into a temporary table.
HOLD_JOBS = (
    "UPDATE jobs SET state = 'processing', attempt = attempt + 1, fence = fence + 1,"
    " token = ? || seq, lease_until = ?, worker = ?, updated_at = ?, progress = NULL, awaits = NULL"
    f" WHERE {_LISTED}"
)
_STARTABLE = (
    f"FROM jobs WHERE {READY} AND queue = ? AND tenant = ?"
    " AND (expires_at IS NULL OR expires_at > ?)"
)
_FIRST = "ORDER BY priority DESC, seq LIMIT ?"
TAKE = f"SELECT {CLAIMED} {_STARTABLE} {_FIRST}"
TAKE_THESE = f"SELECT {CLAIMED} FROM jobs WHERE {_LISTED} ORDER BY priority DESC, seq"
STARTABLE = (
    f"SELECT seq, group_name, type, priority {_STARTABLE}"
    " AND (group_name IS NULL OR group_name NOT IN (SELECT value FROM json_each(?)))"
    f" {_FIRST}"
)

# Claims by their nonce.
CLAIM_OF = "SELECT seqs FROM claims WHERE nonce = ? AND until > ?"
CLAIM_PUT = (
    "INSERT INTO claims (nonce, until, seqs) VALUES (?, ?, ?) ON CONFLICT (nonce)"
    " DO UPDATE SET until = excluded.until, seqs = excluded.seqs"
)
CLAIMS_DROP = (
    "DELETE FROM claims WHERE nonce IN"
    " (SELECT nonce FROM claims WHERE until <= ? ORDER BY until LIMIT ?)"
)
HELD_STILL = (
    f"SELECT token, lease_until, journal, {RECORD} FROM jobs WHERE {_LISTED}"
    " AND state = 'processing' AND token = ? || seq AND lease_until > ? ORDER BY seq"
)
# Fails a job whose record cannot be read.
SET_ASIDE = (
    "UPDATE jobs SET state = 'failed', reason = 'DECODE', error = ?, token = NULL, gate = 0,"
    " updated_at = ?, finished_at = ?, keep_until = ? WHERE seq = ?"
    " RETURNING tenant, id, queue, type, attempt, fence, group_name, key, size, edges"
)

# The next instants at which time changes something: one query, because each statement costs a claim
# 15 us when the processor has slept.
NEXT = (
    f"SELECT (SELECT run_at FROM jobs WHERE {DUE} ORDER BY run_at LIMIT 1),"
    f" (SELECT lease_until FROM jobs WHERE {HELD} ORDER BY lease_until LIMIT 1),"
    " (SELECT at FROM reopen ORDER BY at LIMIT 1), (SELECT 0 FROM releasing LIMIT 1),"
    f" (SELECT expires_at FROM jobs WHERE {WITH_TTL} AND late = 0 ORDER BY expires_at LIMIT 1)"
)

# -- extend, ack, cancel, change -------------------------------------------------------------------

ROW_BY_ID = f"SELECT {ROW} FROM jobs WHERE tenant = ? AND id = ?"
ROWS_BY_SEQ = f"SELECT {ROW} FROM jobs WHERE {_LISTED}"


def _update(columns: str, last: str, more: str = "") -> Update:
    """Sets these columns, the last one for each job to a value of its own, and `more`."""
    same = "".join(f"{column} = ?, " for column in columns.split())
    return Update(
        f"UPDATE jobs SET {same}{last} = ?{more} WHERE {_LISTED}",
        f"WITH new (seq, value) AS (VALUES (?, ?)) UPDATE jobs SET {same}{last} = new.value{more}"
        " FROM new WHERE jobs.seq = new.seq",
    )


SAVE = _update(
    "state priority attempt lapses misses token lease_until reason error progress updated_at gate"
    " awaits",
    "run_at",
)
FINISH = _update(
    "state attempt lapses misses token reason error updated_at finished_at keep_until",
    "result",
    ", gate = 0, awaits = NULL",
)
REMOVE = f"DELETE FROM jobs WHERE {_LISTED}"
BODY_REMOVE = f"DELETE FROM bodies WHERE {_LISTED}"
REPLAY = (
    f"INSERT INTO jobs ({_NEW}, journal)"
    " SELECT ?, tenant, ?, queue, type, codec, version, 'enqueued', priority, ?, max_attempts,"
    " ?, ?, ? + expires_at - created_at, keep_us, NULL, group_name, tags, id, rules, payload,"
    " ?, ?, ? FROM jobs WHERE seq = ?"
    " ON CONFLICT (tenant, id) DO NOTHING"
)
REPLAY_BODY = "INSERT INTO bodies SELECT ?, payload FROM bodies WHERE seq = ?"
PAYLOAD_SIZE = f"SELECT length({_PAYLOAD}) FROM jobs WHERE seq = ?"
REPLAYED = "UPDATE jobs SET replayed_as = ? WHERE seq = ?"

# -- maintenance -----------------------------------------------------------------------------------

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
PRUNABLE = (
    "SELECT seq, journal, edges FROM jobs"
    " WHERE keep_until IS NOT NULL AND keep_until <= ? ORDER BY keep_until LIMIT ?"
)
PRUNE_JOBS = (
    f"DELETE FROM jobs WHERE {_LISTED}"
    " RETURNING tenant, queue, type, key, id, state, group_name, seq, size"
)
KEEP_LONGER = f"UPDATE jobs SET keep_until = ? WHERE {_LISTED}"
PAST_KEYS = (
    f"SELECT keys.tenant, keys.queue, keys.type, keys.key, jobs.state FROM keys {_KEY_JOB}"
    " WHERE keys.until IS NOT NULL AND keys.until <= ? ORDER BY keys.until LIMIT ?"
)
KEY_DROP = "DELETE FROM keys WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
# From its instant on, the key of a job that still runs is held by the job alone.
KEY_UNTIMED = "UPDATE keys SET until = NULL WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
EVENTS_OLDEST = "SELECT cursor, number, at FROM events ORDER BY cursor"
PRUNE_EVENTS = "DELETE FROM events WHERE cursor <= ?"
FLOOR_SAVE = "UPDATE counters SET events_floor = ?"
PRUNE_HOLDS = (
    "DELETE FROM holds WHERE name IN"
    " (SELECT name FROM holds WHERE until <= ? ORDER BY until LIMIT ?) RETURNING name, scope"
)
PRUNE_COUNTS = (
    "DELETE FROM counts WHERE (kind, tenant, part) IN"
    f" (SELECT kind, tenant, part FROM counts WHERE {IDLE} LIMIT ?)"
)
PRUNE_PARTS = (
    "DELETE FROM counts WHERE (kind, tenant, part) IN (SELECT kind, tenant, part FROM counts"
    f" INDEXED BY counts_idle WHERE {IDLE} AND tenant = ? AND kind = ? LIMIT ?)"
)
PRUNE_BUCKETS = (
    "DELETE FROM buckets WHERE (kind, tenant, part) IN"
    " (SELECT kind, tenant, part FROM buckets WHERE full_at <= ? LIMIT ?)"
)

# -- find, count, explain --------------------------------------------------------------------------

# The end of the log; the counter may be ahead of it.
EVENT_BOUNDS = (
    "SELECT max(events_floor, coalesce((SELECT max(cursor) FROM events), 0)), events_floor"
    " FROM counters"
)
WORKER = "SELECT worker FROM jobs WHERE seq = ?"
STATE_OF = "SELECT state FROM jobs WHERE tenant = ? AND id = ?"
COUNTS = (
    "SELECT tenant, part, waiting, scheduled, enqueued, processing, retrying, completed, failed,"
    f" canceled, slots FROM counts WHERE kind = ? AND tenant > '' AND NOT ({IDLE})"
)
# Due jobs that readers see as enqueued. Claims leave few of them.
COUNT_DUE = tuple(
    f"SELECT tenant, {{part}}, state, count(*), min(run_at) FROM jobs INDEXED BY {index}"
    f" WHERE {place} AND run_at <= ? GROUP BY 1, 2, 3"
    for index, place in (
        ("jobs_due", DUE),
        ("jobs_ttl", f"{WITH_TTL} AND late = 1 AND state IN ('scheduled', 'retrying')"),
    )
)
OLDEST = (
    "SELECT run_at FROM jobs WHERE state = 'enqueued' AND tenant = ? AND queue = ?"
    " ORDER BY run_at LIMIT 1"
)
# Jobs that a claim would take before this one: ready ones, and those that it makes ready first.
_IN_LINE = "queue = ?1 AND tenant = ?2 AND (priority > ?3 OR (priority = ?3 AND seq < ?4))"
_NOT_EXPIRED = "(expires_at IS NULL OR expires_at > ?6)"
AHEAD = "SELECT count(*) FROM ({} LIMIT ?5)".format(
    " UNION ALL ".join(
        f"SELECT 1 FROM jobs INDEXED BY {index} WHERE {place} AND {_IN_LINE} AND {_NOT_EXPIRED}"
        for index, place in (
            ("jobs_ready", READY),
            ("jobs_aside", ASIDE),
            ("jobs_due", f"{DUE} AND run_at <= ?6"),
            ("jobs_held", f"{HELD} AND lease_until <= ?6"),
        )
    )
)
_OPEN_TENANT = (
    "EXISTS (SELECT 1 FROM counts WHERE kind = 'tenant' AND counts.tenant = jobs.tenant"
    " AND part = '' AND open = 1)"
)
TENANTS_OF_QUEUE = (
    "SELECT count(*) FROM (SELECT line.tenant FROM counts AS line INDEXED BY lines_ring"
    " CROSS JOIN counts AS whole"
    " ON whole.kind = 'tenant' AND whole.tenant = line.tenant AND whole.part = ''"
    " WHERE line.kind = 'queue' AND line.ready = 1 AND line.ring > 0 AND line.part = ?1"
    " AND whole.open = 1"
    f" UNION SELECT tenant FROM jobs INDEXED BY jobs_due WHERE {DUE} AND run_at <= ?2"
    f" AND queue = ?1 AND {_OPEN_TENANT}"
    f" UNION SELECT tenant FROM jobs INDEXED BY jobs_held WHERE {HELD} AND lease_until <= ?2"
    f" AND queue = ?1 AND {_OPEN_TENANT})"
)
COUNT_LAPSED = (
    f"SELECT count(*) FROM jobs INDEXED BY jobs_held WHERE {HELD} AND lease_until <= ?3"
    " AND {inside}"
)
HOLDERS = (
    f"SELECT id FROM jobs INDEXED BY jobs_held WHERE {HELD} AND lease_until > ?3 AND {{inside}}"
    f" UNION ALL SELECT id FROM jobs INDEXED BY jobs_spent WHERE {SPENT} AND {{inside}} LIMIT ?4"
)
# Of a scope of the platform: how many jobs of each tenant take its places.
HOLDING_TENANTS = (
    "SELECT tenant, count(*) FROM ("
    f"SELECT tenant FROM jobs INDEXED BY jobs_held WHERE {HELD} AND lease_until > ?3"
    " AND {inside}"
    f" UNION ALL SELECT tenant FROM jobs INDEXED BY jobs_spent WHERE {SPENT} AND {{inside}}"
    ") GROUP BY tenant"
)
RUNNING_INSIDE = (
    f"SELECT (SELECT count(*) FROM jobs INDEXED BY jobs_held WHERE {HELD} AND {{inside}})"
    f" + (SELECT count(*) FROM jobs INDEXED BY jobs_spent WHERE {SPENT} AND {{inside}})"
)
# The jobs inside a scope: ?1 is its tenant, ?2 its part.
INSIDE = {
    ("tenant", False): "tenant = ?1 AND ?2 = ''",
    ("queue", False): "tenant = ?1 AND queue = ?2",
    ("group", False): "tenant = ?1 AND group_name = ?2",
    ("platform", True): "?1 = '' AND ?2 = ''",
    ("queue", True): "?1 = '' AND queue = ?2",
    ("type", True): "?1 = '' AND type = ?2",
}
