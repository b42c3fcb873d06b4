"""Every statement of the SQLite store, by name. Where each index serves is drawn in `layout.py`.

A partial index is used only by a query that repeats its condition word for word; the conditions
below are therefore written once.
"""

from __future__ import annotations

# Conditions of the partial indexes.
READY = "state = 'enqueued' AND late = 0 AND gate = 0"
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

_PAYLOAD = "coalesce(payload, (SELECT bodies.payload FROM bodies WHERE bodies.seq = jobs.seq))"

# What `rows.record` reads, in its order.
RECORD = (
    f"tenant, id, queue, type, codec, version, {_PAYLOAD}, rules, priority, key, group_name, tags,"
    " origin, seq, state, attempt, fence, lapses, misses,"
    " created_at, updated_at, run_at, expires_at, lease_until, worker, finished_at, reason, error,"
    " result, progress, replayed_as"
)

# What `rows.claimed` reads, in its order: the rest of the record a claim knows.
CLAIMED = (
    f"id, type, codec, version, {_PAYLOAD}, rules, priority, key, group_name, tags, origin, seq,"
    " attempt, fence, lapses, misses, created_at, run_at, expires_at, reason, error"
)

# What `rows.Row` reads, in its order.
ROW = (
    "seq, tenant, id, queue, type, key, rules, state, priority, run_at, attempt, max_attempts,"
    " fence, lapses, misses, token, lease_until, expires_at, finished_at, reason, error, progress,"
    " group_name, size, late, gate"
)

# -- heads and events ------------------------------------------------------------------------------

HEADS = "SELECT seq, cursor, scopes, turn FROM heads"
HEADS_SAVE = "UPDATE heads SET seq = ?, cursor = ?, scopes = ?, turn = ?"
RUN = "cursor, number, ids, at, kind, tenant, queue, type, attempt, fence, until, note, signed"
EVENT_INSERT = f"INSERT INTO events ({RUN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

# -- enqueue ---------------------------------------------------------------------------------------

_NEW = (
    "seq, tenant, id, queue, type, codec, version, state, priority, run_at, max_attempts,"
    " created_at, updated_at, expires_at, keep_us, key, group_name, tags, origin, rules, payload,"
    " size, gate"
)
INSERT = (
    f"INSERT INTO jobs ({_NEW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
    " ?, ?, ?, ?) ON CONFLICT (tenant, id) DO NOTHING"
)
# A plain job's, without what only some have.
PLAIN_INSERT = (
    "INSERT INTO jobs (seq, tenant, id, queue, type, codec, version, state, priority, run_at,"
    " max_attempts, created_at, updated_at, keep_us, rules, payload, size) VALUES "
)
PLAIN_MARKS = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
PLAIN_END = " ON CONFLICT (tenant, id) DO NOTHING"
SEQS_FROM = "SELECT seq FROM jobs WHERE seq >= ?"
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
# Jobs past their time to live leave the order: upkeep fails them, no claim walks over them.
RETIRE = (
    "UPDATE jobs SET late = 1 WHERE seq IN"
    f" (SELECT seq FROM jobs WHERE {WITH_TTL} AND late = 0 AND expires_at <= ? LIMIT ?)"
    " RETURNING tenant, queue, group_name, state, gate"
)
# Read first, then written: RETURNING would put every row into a table of its own in between.
HOLD_JOBS = (
    "UPDATE jobs SET state = 'processing', attempt = attempt + 1, fence = fence + 1,"
    " token = ? || seq, lease_until = ?, worker = ?, updated_at = ?, progress = NULL"
    " WHERE seq IN (SELECT value FROM json_each(?))"
)
_STARTABLE = (
    f"FROM jobs WHERE {READY} AND queue = ? AND tenant = ?"
    " AND (expires_at IS NULL OR expires_at > ?)"
)
_FIRST = "ORDER BY priority DESC, seq LIMIT ?"
TAKE = f"SELECT {CLAIMED} {_STARTABLE} {_FIRST}"
TAKE_BEFORE = (
    f"SELECT {CLAIMED} {_STARTABLE} AND (priority > ? OR (priority = ? AND seq < ?)) {_FIRST}"
)
TAKE_THESE = (
    f"SELECT {CLAIMED} FROM jobs WHERE seq IN (SELECT value FROM json_each(?))"
    " ORDER BY priority DESC, seq"
)
STARTABLE = (
    f"SELECT seq, group_name {_STARTABLE}"
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
    f"SELECT token, lease_until, {RECORD} FROM jobs"
    " WHERE seq IN (SELECT value FROM json_each(?))"
    " AND state = 'processing' AND token = ? || seq AND lease_until > ? ORDER BY seq"
)
# A record that cannot be read.
SET_ASIDE = (
    "UPDATE jobs SET state = 'failed', reason = 'DECODE', error = ?, token = NULL, gate = 0,"
    " updated_at = ?, finished_at = ?, keep_until = ? WHERE seq = ?"
    " RETURNING tenant, id, queue, type, attempt, fence, group_name, key, size"
)

# When something next comes to pass by itself: all in one question, for each costs a claim 15 us
# when the processor has slept.
NEXT = (
    f"SELECT (SELECT run_at FROM jobs WHERE {DUE} ORDER BY run_at LIMIT 1),"
    f" (SELECT lease_until FROM jobs WHERE {HELD} ORDER BY lease_until LIMIT 1),"
    " (SELECT at FROM reopen ORDER BY at LIMIT 1),"
    f" (SELECT expires_at FROM jobs WHERE {WITH_TTL} AND late = 0 ORDER BY expires_at LIMIT 1)"
)

# -- extend, ack, cancel, change -------------------------------------------------------------------

# A plain completion, nearly every ack, in two statements for a whole batch. The condition is all of
# lifecycle.refusal but the token; where it does not hold, the rules look at the row and say why.
# (Not one UPDATE ... RETURNING each: the table that RETURNING makes costs as much as the update.)
COMPLETING = (
    "SELECT seq, tenant, id, token, queue, type, attempt, fence, key, keep_us,"
    " group_name, size FROM jobs"
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
    " updated_at = ?, finished_at = ?, keep_until = ?, gate = ? WHERE seq = ?"
)
REMOVE = "DELETE FROM jobs WHERE seq = ?"
BODY_REMOVE = "DELETE FROM bodies WHERE seq = ?"
REMOVE_ALL = "DELETE FROM jobs WHERE seq IN "
REPLAY = (
    f"INSERT INTO jobs ({_NEW})"
    " SELECT ?, tenant, ?, queue, type, codec, version, 'enqueued', priority, ?, max_attempts,"
    " ?, ?, ? + expires_at - created_at, keep_us, NULL, group_name, tags, id, rules, payload,"
    " size, ? FROM jobs WHERE seq = ?"
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
    " RETURNING tenant, queue, type, key, id, state, group_name, seq, size"
)
PAST_KEYS = (
    f"SELECT keys.tenant, keys.queue, keys.type, keys.key, jobs.state FROM keys {_KEY_JOB}"
    " WHERE keys.until IS NOT NULL AND keys.until <= ? ORDER BY keys.until LIMIT ?"
)
KEY_DROP = "DELETE FROM keys WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
# From its instant on, the key of a job that still runs is held by the job alone.
KEY_UNTIMED = "UPDATE keys SET until = NULL WHERE tenant = ? AND queue = ? AND type = ? AND key = ?"
EVENTS_OLDEST = "SELECT cursor, number, at FROM events ORDER BY cursor"
PRUNE_EVENTS = "DELETE FROM events WHERE cursor <= ?"
FLOOR_SAVE = "UPDATE heads SET events_floor = ?"
PRUNE_HOLDS = (
    "DELETE FROM holds WHERE name IN"
    " (SELECT name FROM holds WHERE until <= ? ORDER BY until LIMIT ?) RETURNING name, scope"
)
PRUNE_COUNTS = (
    "DELETE FROM counts WHERE (kind, tenant, part) IN"
    f" (SELECT kind, tenant, part FROM counts WHERE {IDLE} LIMIT ?)"
)
PRUNE_NAMES = (
    "DELETE FROM counts WHERE (kind, tenant, part) IN (SELECT kind, tenant, part FROM counts"
    f" INDEXED BY counts_idle WHERE {IDLE} AND tenant = ? AND kind = ? LIMIT ?)"
)
PRUNE_BUCKETS = (
    "DELETE FROM buckets WHERE (kind, tenant, part) IN"
    " (SELECT kind, tenant, part FROM buckets WHERE full_at <= ? LIMIT ?)"
)

# -- sight -----------------------------------------------------------------------------------------

EVENT_HEADS = "SELECT cursor, events_floor FROM heads"
WORKER = "SELECT worker FROM jobs WHERE seq = ?"
STATE_OF = "SELECT state FROM jobs WHERE tenant = ? AND id = ?"
COUNTS = (
    "SELECT tenant, part, waiting, scheduled, enqueued, processing, retrying, completed, failed,"
    f" canceled, slots FROM counts WHERE kind = ? AND NOT ({IDLE})"
)
# Due jobs are enqueued for who looks, moved yet or not. Claims leave few of them here.
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
AHEAD = (
    f"SELECT count(*) FROM (SELECT 1 FROM jobs WHERE {READY} AND queue = ?1 AND tenant = ?2"
    " AND (priority > ?3 OR (priority = ?3 AND seq < ?4)) ORDER BY priority DESC, seq LIMIT ?5)"
)
HOLDERS = (
    f"SELECT id FROM jobs INDEXED BY jobs_held WHERE {HELD} AND {{inside}}"
    f" UNION ALL SELECT id FROM jobs INDEXED BY jobs_spent WHERE {SPENT} AND {{inside}} LIMIT ?3"
)

# -- scopes ----------------------------------------------------------------------------------------

STATE_COLUMNS = (
    "waiting", "scheduled", "enqueued", "processing", "retrying", "completed", "failed", "canceled",
)  # fmt: skip
SUMMED = (*STATE_COLUMNS, "bytes", "blocked")
_COUNTED = (
    f"INSERT INTO counts (kind, tenant, part, turn, {', '.join(SUMMED)})"
    f" VALUES (?, ?, ?, ?{', ?' * len(SUMMED)}) ON CONFLICT (kind, tenant, part) DO UPDATE SET "
)
_ADD = {name: f"{name} = {name} + excluded.{name}" for name in SUMMED}
COUNT_ADD = (
    _COUNTED
    + ", ".join(_ADD.values())
    # A line that comes up goes to the end of its tenant's; what a tenant does then, a trigger says.
    + ", turn = CASE WHEN kind <> 'queue' OR enqueued > blocked THEN turn ELSE excluded.turn END"
)
# Where no job entered or left a line, its place in the indexes of lines is not written anew.
COUNT_ADD_BESIDE = _COUNTED + ", ".join(
    text for name, text in _ADD.items() if name not in ("enqueued", "blocked")
)
SLOT_ADD = (
    "INSERT INTO counts (kind, tenant, part, slots) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part) DO UPDATE SET slots = slots + excluded.slots"
)
TAKEN = "SELECT processing, slots FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
NAME_COUNTS = (
    "SELECT queue_count, group_count FROM counts WHERE kind = 'tenant' AND tenant = ? AND part = ''"
)
NAME_KNOWN = "SELECT 1 FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
SLOT_COUNT = "SELECT slot_count FROM counts WHERE kind = 'tenant' AND tenant = ? AND part = ''"
ALIVE = (
    "SELECT waiting + scheduled + enqueued + processing + retrying, bytes FROM counts"
    " WHERE kind = ? AND tenant = ? AND part = ?"
)
SLOTS_PAST = "SELECT count(*) FROM holds WHERE scope = ? AND until <= ?"
SLOT_NEXT = "SELECT until FROM holds WHERE scope = ? AND until > ? ORDER BY until LIMIT 1"
SLOT_NAMES = "SELECT name FROM holds WHERE scope = ? AND until > ? ORDER BY until LIMIT ?"
SLOTS_DROP = "DELETE FROM holds WHERE scope = ? AND until <= ?"
BUCKET = "SELECT full_at FROM buckets WHERE kind = ? AND tenant = ? AND part = ?"
BUCKET_PUT = (
    "INSERT INTO buckets (kind, tenant, part, full_at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part) DO UPDATE SET full_at = excluded.full_at"
)
BUCKETS_OF = "SELECT part FROM buckets WHERE kind = 'group' AND tenant = ?"
BUCKET_BOUND = (
    "UPDATE buckets SET full_at = min(full_at, ?4) WHERE kind = ?1 AND tenant = ?2 AND part = ?3"
)
REOPEN_AT = "SELECT at FROM reopen WHERE kind = ? AND tenant = ? AND part = ?"
REOPEN_PUT = (
    "INSERT INTO reopen (kind, tenant, part, at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part) DO UPDATE SET at = min(at, excluded.at)"
)
REOPEN_PAST = "SELECT kind, tenant, part FROM reopen WHERE at <= ? ORDER BY at LIMIT ?"
REOPEN_DROP = "DELETE FROM reopen WHERE kind = ? AND tenant = ? AND part = ?"
SCOPE_OPEN = "SELECT open FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
SCOPE_SET = "UPDATE counts SET open = ?, turn = ? WHERE kind = ? AND tenant = ? AND part = ?"

GATE = "UPDATE jobs SET gate = 1 WHERE seq IN (SELECT value FROM json_each(?))"
GRANT = "UPDATE jobs SET gate = 0 WHERE seq IN (SELECT value FROM json_each(?))"
_PART = f"FROM jobs WHERE {GATED} AND tenant = ? AND group_name = ?"
WAITING_QUEUE = f"SELECT queue {_PART} AND gate = 1 AND queue > ? ORDER BY queue LIMIT 1"
GRANTED_QUEUE = f"SELECT queue {_PART} AND gate = 0 AND queue > ? ORDER BY queue LIMIT 1"
GRANTED = f"SELECT count(*) FROM (SELECT 1 {_PART} AND gate = 0 AND queue = ? LIMIT ?)"
GRANTED_LAST = (
    f"SELECT priority, seq {_PART} AND gate = 0 AND queue = ? ORDER BY priority, seq DESC LIMIT 1"
)
GRANTABLE = (
    f"SELECT priority, seq {_PART} AND gate = 1 AND queue = ? ORDER BY priority DESC, seq LIMIT ?"
)
REGATE = (
    f"UPDATE jobs SET gate = ?1 WHERE {GATED} AND tenant = ?2 AND group_name = ?3"
    " AND gate = 1 - ?1 AND queue = ?4"
)
HEAD = (
    f"SELECT seq, id, queue, state, gate, late FROM jobs WHERE {IN_ORDER}"
    " AND tenant = ? AND group_name = ? ORDER BY seq LIMIT 1"
)
GROUP_AFTER = (
    f"SELECT group_name FROM jobs INDEXED BY jobs_gated WHERE {GATED} AND tenant = ?"
    " AND group_name > ? ORDER BY group_name LIMIT 1"
)

RECOUNT = tuple(
    f"SELECT '{kind}', tenant, {part}, state, count(*), sum(size),"
    " sum(state = 'enqueued' AND (gate = 1 OR late = 1)) FROM jobs"
    f" WHERE {part} IS NOT NULL GROUP BY tenant, {part}, state"
    for kind, part in (("tenant", "''"), ("queue", "queue"), ("group", "group_name"))
)
RECOUNT_SLOTS = "SELECT name FROM holds WHERE scope IS NOT NULL"
RUNNING = (
    "SELECT json_array(tenant, part), processing FROM counts WHERE kind = 'queue' AND processing"
)
COUNTS_CLEAR = "DELETE FROM counts"

# -- names -----------------------------------------------------------------------------------------

SETTING = "SELECT name, value, version FROM settings WHERE name = ?"
SETTING_PUT = (
    "INSERT INTO settings (name, value, version, stamp) VALUES (?, ?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value, version = excluded.version, stamp = excluded.stamp"
)
SETTINGS_SINCE = "SELECT name, value FROM settings WHERE stamp IS NOT NULL AND stamp > ?"
SETTINGS_PAGE = "SELECT name, value, version FROM settings WHERE value IS NOT NULL AND {names}"
SETTINGS_WITHIN = "SELECT count(*) FROM settings WHERE name >= ? AND name < ?"
HOLD = "SELECT name, owner, until, note FROM holds WHERE name = ?"
HOLD_PUT = (
    "INSERT INTO holds (name, owner, until, note, scope, tenant) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (name)"
    " DO UPDATE SET owner = excluded.owner, until = excluded.until, note = excluded.note"
)
HOLD_DROP = "DELETE FROM holds WHERE name = ?"
HOLDS_PAGE = "SELECT name, owner, until, note FROM holds WHERE until > ? AND {names}"
PAST_SLOTS = (
    "DELETE FROM holds WHERE name IN (SELECT name FROM holds INDEXED BY holds_tenant"
    " WHERE tenant = ? AND until <= ? LIMIT ?) RETURNING name"
)
