"""The statements that Python sends. The busy verbs are functions of `sql/functions/`.

`holdfast.` stands for the schema that the store's URL names. One statement of each verb names the
schema and the functions that it was written for, by `expect`, which returns its argument or stops
the transaction.
"""

from __future__ import annotations

from holdfast.stores.postgres.schema import FORMAT

EXPECT = f"holdfast.expect('{FORMAT}', {{}})"

# What `rows.record` reads, in its order.
_RECORD = (
    "tenant, id, queue, type, codec, version, payload, rules, priority, key, group_name, tags,"
    " origin, seq, state, attempt, fence, lapses, misses, created_at, updated_at, run_at,"
    " expires_at, {lease_until}, {worker}, {finished_at}, reason, error, {result}, progress,"
    " {replayed_as}, {awaits}"
)
LIVE = _RECORD.format(
    lease_until="lease_until",
    worker="worker",
    finished_at="NULL::bigint AS finished_at",
    result="NULL::bytea AS result",
    replayed_as="NULL::text AS replayed_as",
    awaits="awaits",
)
DONE = _RECORD.format(
    lease_until="NULL::bigint AS lease_until",
    worker="NULL::text AS worker",
    finished_at="finished_at",
    result="result",
    replayed_as="replayed_as",
    awaits="NULL::text AS awaits",
)

# What `rows.Row` reads, in its order.
_ROW = (
    "seq, tenant, id, queue, type, key, rules, state, priority, run_at, attempt, max_attempts,"
    " fence, lapses, misses, {token}, {lease_until}, expires_at, {finished_at}, reason, error,"
    " progress, group_name, size, {late}, {gate}, {awaits}, journal, edges"
)
_OF_LIVING = ("token", "lease_until", "late", "gate", "awaits")
ROW_LIVE = _ROW.format(finished_at="NULL::bigint", **{name: name for name in _OF_LIVING})
_OF_ENDED = {"finished_at": "finished_at", "late": "0", "gate": "0", "lease_until": "NULL::bigint"}
ROW_DONE = _ROW.format(token="NULL::text", awaits="NULL::text", **_OF_ENDED)

STATE_COLUMNS = (
    "waiting", "scheduled", "enqueued", "processing", "retrying", "completed", "failed", "canceled",
)  # fmt: skip

NOW = f"SELECT holdfast.now_us({EXPECT.format('$1::bigint')})"
LOCK_CLAIMS = f"SELECT holdfast.lock_claims() WHERE {EXPECT.format('true')}"
FOLD = "SELECT holdfast.fold_deltas($1)"
FOLD_IF_DUE = "SELECT holdfast.fold_if_due()"
NOTIFY = "SELECT pg_notify($1, $2)"
NOTIFY_ENDED = "SELECT holdfast.notify_ended_jobs($1, $2, $3, $4)"

# -- the busy verbs --------------------------------------------------------------------------------


def _busy(call: str, number: int, instant: int) -> str:
    """A call with so many values, one of which is the caller's instant."""
    values = [f"${n}" for n in range(1, number + 1)]
    values[instant - 1] = EXPECT.format(f"${instant}::bigint")
    return f"{call}({', '.join(values)})"


_ANSWERS = "SELECT ord, why, id, queue, type, has, most FROM "
ENQUEUE = _busy(f"{_ANSWERS}holdfast.enqueue", 26, 20)
ENQUEUE_WHOLE = _busy(f"{_ANSWERS}holdfast.enqueue_whole", 26, 20)
# One row at least. Its last values say whether it is one of the claim, and whether edges of ended
# jobs are left.
CLAIM = (
    "SELECT c.*, EXISTS (SELECT FROM holdfast.releasing ORDER BY tenant, seq LIMIT 1) FROM"
    " (VALUES (1)) one LEFT JOIN (SELECT x.*, true AS is_row FROM"
    f" {_busy('holdfast.claim', 16, 8)} x OFFSET 0) c ON true"
)
COMPLETE = _busy(
    "SELECT places, tenants, queues, parents, holdfast.notify_ended_jobs($3, $4, $8, $9)"
    " FROM holdfast.complete_jobs",
    9,
    6,
)
EXTEND = _busy("SELECT ord, until FROM holdfast.extend", 8, 7)
CANCEL = _busy("SELECT ord, state, tenant, queue FROM holdfast.cancel", 7, 3)
NEXT_WAKEUP = _busy("SELECT holdfast.next_wakeup_us", 3, 3)

# -- what the rules of lifecycle.py decide ---------------------------------------------------------

_NAMES = "(SELECT DISTINCT u.t, u.i FROM unnest($1::text[], $2::text[]) AS u(t, i)) w"
READ_LIVE = f"SELECT {ROW_LIVE} FROM holdfast.jobs JOIN {_NAMES} ON tenant = w.t AND id = w.i"
LOCK_LIVE = f"{READ_LIVE} ORDER BY seq FOR UPDATE OF jobs"
LOCK_SEQS = f"SELECT {ROW_LIVE} FROM holdfast.jobs WHERE seq = ANY ($1) ORDER BY seq FOR UPDATE"
READ_DONE = f"SELECT {ROW_DONE} FROM holdfast.history JOIN {_NAMES} ON tenant = w.t AND id = w.i"
GROUPED = "SELECT tenant FROM holdfast.settings_of_tenants($1) WHERE grouped"
SAVE = (
    "UPDATE holdfast.jobs j SET state = u.state, priority = u.priority, run_at = u.run_at,"
    " attempt = u.attempt, lapses = u.lapses, misses = u.misses, token = u.token,"
    " lease_until = u.lease_until, reason = u.reason, error = u.error, progress = u.progress,"
    " gate = u.gate, awaits = u.awaits, updated_at = $15"
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[],"
    " $6::integer[], $7::integer[], $8::text[], $9::bigint[], $10::text[], $11::text[],"
    " $12::text[], $13::smallint[], $14::text[])"
    " AS u(seq, state, priority, run_at, attempt, lapses, misses, token, lease_until, reason,"
    " error, progress, gate, awaits) WHERE j.seq = u.seq"
)
_MOVED = (
    "seq, priority, created_at, expires_at, keep_us, version, max_attempts, fence, size, tenant,"
    " id, queue, type, codec, key, group_name, tags, origin, rules, payload, journal, edges"
)
FINISH = (
    "WITH gone AS (DELETE FROM holdfast.jobs WHERE seq = ANY ($1) RETURNING *)"
    f" INSERT INTO holdfast.history ({_MOVED}, state, run_at, attempt, lapses, misses, reason,"
    " error, progress, result, keep_until, updated_at, finished_at)"
    f" SELECT {', '.join(f'g.{name}' for name in _MOVED.split(', '))},"
    " u.state, u.run_at, u.attempt, u.lapses, u.misses, u.reason, u.error, u.progress, u.result,"
    " u.keep_until, $12, $12 FROM gone g JOIN"
    " unnest($1::bigint[], $2::text[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[],"
    " $7::text[], $8::text[], $9::text[], $10::bytea[], $11::bigint[])"
    " AS u(seq, state, run_at, attempt, lapses, misses, reason, error, progress, result,"
    " keep_until) ON u.seq = g.seq"
)
REMOVE = "DELETE FROM holdfast.jobs WHERE seq = ANY ($1)"
FORGET = "DELETE FROM holdfast.history WHERE seq = ANY ($1)"
# Each key is looked up by itself: a join could read those of all tenants.
KEYS_RELEASE = (
    "DELETE FROM holdfast.keys WHERE ctid = ANY (ARRAY("
    "SELECT found.ctid FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])"
    " AS u(tenant, queue, type, key, id) CROSS JOIN LATERAL ("
    "SELECT k.ctid FROM holdfast.keys k WHERE k.tenant = u.tenant AND k.queue = u.queue"
    " AND k.type = u.type AND k.key = u.key AND k.id = u.id AND coalesce(k.until, 0) <= $6 LIMIT 1"
    ") found))"
)
DELTAS = (
    "INSERT INTO holdfast.deltas (tenant, queue, group_name, type, waiting, scheduled, enqueued,"
    " processing, retrying, completed, failed, canceled, blocked, bytes, head_rank, head_seq, due)"
    " SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::integer[],"
    " $6::integer[], $7::integer[], $8::integer[], $9::integer[], $10::integer[], $11::integer[],"
    " $12::integer[], $13::integer[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[])"
)
ANNOUNCE = "SELECT holdfast.announce()"
EVENTS_INSERT = (
    "INSERT INTO holdfast.events (cursor, at, kind, tenant, job_id, queue, type, attempt, fence,"
    " until, note, signed) SELECT nextval('holdfast.cursors'), $1::bigint, u.*, $2::text FROM"
    " unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[],"
    " $9::integer[], $10::bigint[], $11::text[]) u"
)
DRAINED = (
    "SELECT holdfast.record_drained_groups(ARRAY(SELECT u::holdfast.ended FROM unnest($1::text[],"
    " $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[], $7::integer[])"
    " AS u(tenant, group_name, id, queue, type, attempt, fence)), $8)"
)
LINES_WITH_SETTINGS = "SELECT tenant, queue FROM holdfast.lines_with_settings($1)"

REPLAY = (
    "INSERT INTO holdfast.jobs (seq, tenant, id, queue, type, codec, version, payload, rules,"
    " priority, run_at, state, created_at, updated_at, expires_at, group_name, tags, origin,"
    " max_attempts, keep_us, size, gate, journal)"
    " SELECT nextval('holdfast.seqs'), tenant, $2, queue, type, codec, version, payload, rules,"
    " priority, $3, 'enqueued', $3, $3, $3 + expires_at - created_at, group_name, tags, id,"
    " max_attempts, keep_us, coalesce(octet_length(payload), 0) + $6::integer, $4, $5"
    " FROM holdfast.history h WHERE seq = $1 AND NOT EXISTS"
    " (SELECT FROM holdfast.history o WHERE o.tenant = h.tenant AND o.id = $2)"
    " ON CONFLICT DO NOTHING RETURNING seq"
)
REPLAYED = "UPDATE holdfast.history SET replayed_as = $2 WHERE seq = $1"
PAYLOAD_SIZE = "SELECT coalesce(octet_length(payload), 0) FROM holdfast.history WHERE seq = $1"
KNOWN = (
    "SELECT EXISTS (SELECT FROM holdfast.jobs WHERE tenant = $1 AND id = $2)"
    " OR EXISTS (SELECT FROM holdfast.history WHERE tenant = $1 AND id = $2)"
)
CAPPED = (
    "SELECT tenant, max_queued, max_bytes FROM holdfast.settings_of_tenants($1)"
    " WHERE max_queued IS NOT NULL OR max_bytes IS NOT NULL ORDER BY tenant"
)
CAP_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.caps/' || $1, 0))"
TALLY = "SELECT processing, alive, bytes FROM holdfast.scope_counts($1, $2, $3)"

# -- reads -----------------------------------------------------------------------------------------

ENDED = (
    "SELECT NOT EXISTS (SELECT FROM holdfast.jobs WHERE tenant = $1 AND id = $2)"
    f" WHERE {EXPECT.format('true')}"
)
WATCH_JOB = "SELECT holdfast.watch_job($1, $2, $3)"
WORKER = "SELECT worker FROM holdfast.jobs WHERE seq = $1"
OLDEST = (
    "SELECT run_at FROM holdfast.jobs WHERE gate NOT IN (2, 4) AND tenant = $1 AND queue = $2"
    " AND state = 'enqueued' ORDER BY run_at LIMIT 1"
)
# Due jobs are enqueued for who looks, moved yet or not. Claims leave few of them here.
COUNT_DUE = (
    "(SELECT tenant, {part}, state, count(*), min(run_at) FROM holdfast.jobs"
    " WHERE gate = 2 AND late = 0 AND run_at <= $1 GROUP BY 1, 2, 3) UNION ALL"
    " (SELECT tenant, {part}, state, count(*), min(run_at) FROM holdfast.jobs"
    " WHERE state IN ('scheduled', 'retrying') AND run_at <= $1 AND late = 1"
    " AND expires_at IS NOT NULL GROUP BY 1, 2, 3)"
)
# Jobs that a claim would make ready first count as ready.
AHEAD = (
    "SELECT count(*) FROM (SELECT FROM holdfast.jobs WHERE gate = 0 AND late = 0 AND queue = $1"
    " AND tenant = $2 AND (-priority, seq) < (-$3::bigint, $4::bigint) AND state = 'enqueued'"
    " AND coalesce(expires_at > $6, true)"
    " UNION ALL SELECT FROM holdfast.aside a CROSS JOIN LATERAL (SELECT FROM holdfast.jobs j"
    " WHERE j.gate = 3 AND j.late = 0 AND j.type = a.part AND j.queue = $1 AND j.tenant = $2"
    " AND (-j.priority, j.seq) < (-$3::bigint, $4::bigint) AND coalesce(j.expires_at > $6, true)) j"
    " WHERE a.tenant = $2 AND a.kind = 'type' AND a.queue = $1"
    " UNION ALL SELECT FROM (SELECT * FROM holdfast.jobs WHERE gate = 2 AND late = 0"
    " AND run_at <= $6 LIMIT $5) d WHERE d.queue = $1 AND d.tenant = $2"
    " AND (-d.priority, d.seq) < (-$3::bigint, $4::bigint)"
    " AND coalesce(d.expires_at > $6, true) LIMIT $5) a"
)
_LEASED = (
    " FROM (SELECT DISTINCT u.seq AS named FROM holdfast.leases l"
    " CROSS JOIN LATERAL unnest(l.seqs) AS u(seq) WHERE {given}) n"
    " CROSS JOIN LATERAL (SELECT * FROM holdfast.jobs j WHERE j.seq = n.named"
    " AND j.state = 'processing' AND {inside} LIMIT 1) job"
)
# A lapsed lease takes no place any more, unless only upkeep may end it.
_HOLDS = "(job.lease_until > $3 OR job.attempt >= job.max_attempts)"
LAPSED_IN = f"SELECT count(*){_LEASED} WHERE NOT {_HOLDS}".replace(
    "{given}", "NOT l.spent AND l.until <= $3"
)
HOLDERS = f"SELECT id{_LEASED} WHERE {_HOLDS} LIMIT $4".replace("{given}", "true")
HOLDING_TENANTS = f"SELECT tenant, count(*){_LEASED} WHERE {_HOLDS} GROUP BY tenant".replace(
    "{given}", "true"
)
PLATFORM_COUNTS = (
    "SELECT s.part, s.running + coalesce((c.n ->> holdfast.scope_key($1, '', s.part))::bigint, 0)"
    " FROM holdfast.scopes s CROSS JOIN (SELECT holdfast.platform_changes() AS n OFFSET 0) c"
    " WHERE s.kind = $1 AND s.tenant = '' AND ($2::text IS NULL OR s.part = $2)"
    " AND ($3::text IS NULL OR s.part > $3) ORDER BY s.part LIMIT $4"
)
HEAD = (
    "SELECT seq, id FROM holdfast.jobs WHERE group_name IS NOT NULL AND tenant = $1"
    " AND group_name = $2 ORDER BY seq LIMIT 1"
)
TENANTS_OF_QUEUE = "SELECT holdfast.count_tenants_in_queue($1)"
SLOTS = (
    "SELECT count(*) FROM holdfast.holds"
    " WHERE kind = $1 AND tenant = $2 AND part = $3 AND until > $4"
)
SLOT_NAMES = (
    "SELECT name FROM holdfast.holds WHERE kind = $1 AND tenant = $2 AND part = $3 AND until > $4"
    " ORDER BY until LIMIT $5"
)

# -- settings and holds ----------------------------------------------------------------------------

SETTING = "SELECT name, value, version FROM holdfast.settings WHERE name = $1"
SETTING_PUT = (
    "INSERT INTO holdfast.settings (name, value, version, tenant) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value, version = excluded.version"
)
# No name that starts with the text comes after this one.
LAST_NAME = "$1::text || repeat(chr(1114111), 4)"
NAMES_PAGE = (
    f"name >= {EXPECT.format('$1::text')} AND name > $2 AND name <= {LAST_NAME}"
    " AND starts_with(name, $1)"
)
SETTINGS_UNDER = (
    f"SELECT name, value, version FROM holdfast.settings WHERE {NAMES_PAGE} AND value IS NOT NULL"
    " ORDER BY name LIMIT $3"
)
SCOPES_OF = "SELECT count(*) FROM (SELECT FROM holdfast.settings WHERE tenant = $1 LIMIT $2) scopes"
SETTINGS_LOCK = "SELECT pg_advisory_xact_lock(hashtext('holdfast.settings'), 0)"
SCOPE = "SELECT value FROM holdfast.settings WHERE name = $1"
HAS_SETTINGS = (
    "INSERT INTO holdfast.tenants_with_settings AS r (tenant, grouped, max_queued, max_bytes)"
    " VALUES ($1, $2, (SELECT max_queued FROM holdfast.scopes WHERE kind = 'tenant'"
    " AND tenant = $1 AND part = ''), (SELECT max_bytes FROM holdfast.scopes WHERE kind = 'tenant'"
    " AND tenant = $1 AND part = '')) ON CONFLICT (tenant) DO UPDATE SET"
    " grouped = r.grouped OR excluded.grouped, max_queued = excluded.max_queued,"
    " max_bytes = excluded.max_bytes"
)
# Has claims keep the limits of the platform from now on, and count what runs already.
PLATFORM_CHANGED = (
    "SELECT holdfast.count_platform_running(), holdfast.note_platform(),"
    " holdfast.schedule_platform($1, $2, $3)"
)
CAP_BUCKET = "SELECT holdfast.cap_bucket($1, $2, $3, $4)"
CAP_GROUP_BUCKETS = "SELECT holdfast.cap_group_buckets($1, $2, $3)"
RESET_GROUP_GATES = "SELECT holdfast.reset_group_gates($1, $2)"
# Has the next claim refresh a scope whose room may have changed by other things than jobs. A line
# that is closed is named, since its queue may have no settings any more.
TOUCH = (
    "INSERT INTO holdfast.deltas (tenant, group_name, queue)"
    " SELECT $1, $2, (SELECT c.part FROM holdfast.counts c WHERE c.kind = 'queue'"
    " AND c.tenant = $1 AND c.part = $3::text AND NOT c.open)"
    " FROM holdfast.tenants_with_settings WHERE tenant = $1"
)
