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
    " {replayed_as}"
)
LIVE = _RECORD.format(
    lease_until="lease_until",
    worker="worker",
    finished_at="NULL::bigint AS finished_at",
    result="NULL::bytea AS result",
    replayed_as="NULL::text AS replayed_as",
)
DONE = _RECORD.format(
    lease_until="NULL::bigint AS lease_until",
    worker="NULL::text AS worker",
    finished_at="finished_at",
    result="result",
    replayed_as="replayed_as",
)

# What `rows.Row` reads, in its order.
_ROW = (
    "seq, tenant, id, queue, type, key, rules, state, priority, run_at, attempt, max_attempts,"
    " fence, lapses, misses, {token}, {lease_until}, expires_at, {finished_at}, reason, error,"
    " progress, group_name, size, {late}, {gate}"
)
ROW_LIVE = _ROW.format(
    token="token", lease_until="lease_until", finished_at="NULL::bigint", late="late", gate="gate"
)
ROW_DONE = _ROW.format(
    token="NULL::text", lease_until="NULL::bigint", finished_at="finished_at", late="0", gate="0"
)

STATE_COLUMNS = (
    "waiting", "scheduled", "enqueued", "processing", "retrying", "completed", "failed", "canceled",
)  # fmt: skip

NOW = f"SELECT holdfast.now_us({EXPECT.format('$1::bigint')})"
LOCK_CLAIMS = f"SELECT holdfast.lock_claims() WHERE {EXPECT.format('true')}"
FOLD = "SELECT holdfast.fold_deltas($1)"
NOTIFY = "SELECT pg_notify($1, $2)"
NOTIFY_ENDED = "SELECT holdfast.notify_ended_jobs($1, $2, $3, $4)"

# -- the busy verbs --------------------------------------------------------------------------------


def _busy(call: str, number: int, instant: int) -> str:
    """A call with so many values, one of which is the caller's instant."""
    values = [f"${n}" for n in range(1, number + 1)]
    values[instant - 1] = EXPECT.format(f"${instant}::bigint")
    return f"{call}({', '.join(values)})"


ENQUEUE = _busy("SELECT ord, why, id, queue, type, has, most FROM holdfast.enqueue", 25, 20)
CLAIM = _busy("SELECT * FROM holdfast.claim", 16, 8)
COMPLETE = _busy(
    "SELECT places, tenants, queues, holdfast.notify_ended_jobs($3, $4, $8, $9)"
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
READ_DONE = f"SELECT {ROW_DONE} FROM holdfast.history JOIN {_NAMES} ON tenant = w.t AND id = w.i"
GROUPED = "SELECT tenant FROM holdfast.settings_of_tenants($1) WHERE grouped"
SAVE = (
    "UPDATE holdfast.jobs j SET state = u.state, priority = u.priority, run_at = u.run_at,"
    " attempt = u.attempt, lapses = u.lapses, misses = u.misses, token = u.token,"
    " lease_until = u.lease_until, reason = u.reason, error = u.error, progress = u.progress,"
    " gate = u.gate, updated_at = $14"
    " FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::integer[],"
    " $6::integer[], $7::integer[], $8::text[], $9::bigint[], $10::text[], $11::text[],"
    " $12::text[], $13::smallint[])"
    " AS u(seq, state, priority, run_at, attempt, lapses, misses, token, lease_until, reason,"
    " error, progress, gate) WHERE j.seq = u.seq"
)
_MOVED = (
    "seq, priority, created_at, expires_at, keep_us, version, max_attempts, fence, size, tenant,"
    " id, queue, type, codec, key, group_name, tags, origin, rules, payload"
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
    " max_attempts, keep_us, size, gate)"
    " SELECT nextval('holdfast.seqs'), tenant, $2, queue, type, codec, version, payload, rules,"
    " priority, $3, 'enqueued', $3, $3, $3 + expires_at - created_at, group_name, tags, id,"
    " max_attempts, keep_us, size, $4 FROM holdfast.history h WHERE seq = $1 AND NOT EXISTS"
    " (SELECT FROM holdfast.history o WHERE o.tenant = h.tenant AND o.id = $2)"
    " ON CONFLICT DO NOTHING RETURNING seq"
)
REPLAYED = "UPDATE holdfast.history SET replayed_as = $2 WHERE seq = $1"
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

# -- upkeep ----------------------------------------------------------------------------------------

_WITH_TTL = "expires_at IS NOT NULL AND state IN ('waiting', 'scheduled', 'enqueued', 'retrying')"
LAPSED = (
    *(
        f"SELECT lease_until, token, {LIVE} FROM (SELECT DISTINCT u.seq AS named FROM"
        f" holdfast.leases l CROSS JOIN LATERAL unnest(l.seqs) AS u(seq)"
        f" WHERE {given} AND l.until <= $1) n"
        " CROSS JOIN LATERAL (SELECT * FROM holdfast.jobs j WHERE j.seq = n.named"
        f" AND j.state = 'processing' AND {left} AND j.lease_until <= $1 LIMIT 1) job"
        " ORDER BY lease_until, seq LIMIT $2"
        for given, left in (
            ("l.spent", "j.attempt >= j.max_attempts"),
            ("NOT l.spent", "j.attempt < j.max_attempts"),
        )
    ),
    *(
        f"SELECT expires_at, NULL, {LIVE} FROM holdfast.jobs WHERE {_WITH_TTL} AND late = {late}"
        " AND expires_at <= $1 ORDER BY expires_at, seq LIMIT $2"
        for late in (1, 0)
    ),
)
# Of leases that ended well, once their time has come.
PRUNE_LEASES = (
    "DELETE FROM holdfast.leases WHERE ctid = ANY (ARRAY(SELECT l.ctid FROM holdfast.leases l"
    " WHERE l.spent AND l.until <= $1 AND NOT EXISTS (SELECT FROM holdfast.jobs j"
    " WHERE j.seq = ANY (l.seqs) AND j.state = 'processing' AND j.lease_until <= $1)"
    " ORDER BY l.until LIMIT $2))"
)
# The parts of the history that have anything past its keeping: from when to when their jobs are
# kept, and whether this user may empty them at once.
DAYS = tuple(range(9))
DAYS_PAST = (
    "SELECT * FROM ("
    + " UNION ALL ".join(
        f"SELECT {day} AS day,"
        f" (SELECT keep_until FROM holdfast.history_{day} ORDER BY keep_until LIMIT 1) AS first,"
        f" (SELECT keep_until FROM holdfast.history_{day} ORDER BY keep_until DESC LIMIT 1),"
        f" has_table_privilege('holdfast.history_{day}', 'TRUNCATE')"
        for day in DAYS
    )
    + ") days WHERE first <= $1 ORDER BY first"
)
DAY_SIZE = {
    day: "SELECT count(*) FROM"
    f" (SELECT keep_until FROM holdfast.history_{day} ORDER BY keep_until LIMIT $1) kept"
    for day in DAYS
}
DAY_LAST = {day: f"SELECT max(keep_until) FROM holdfast.history_{day}" for day in DAYS}
LOCK_DAY = "SELECT holdfast.lock_history_day($1, $2)"
# Counts jobs of a day as gone, which then goes at once; keys are freed as with each single job.
DAY_UNCOUNT = {
    day: "WITH past AS MATERIALIZED (SELECT tenant, queue, type, key, id, state, group_name,"
    f" keep_until FROM holdfast.history_{day} WHERE keep_until > $1 ORDER BY keep_until"
    " FETCH FIRST ($2::bigint) ROWS WITH TIES),"
    " freed AS (DELETE FROM holdfast.keys k USING past p WHERE p.key IS NOT NULL"
    " AND k.tenant = p.tenant AND k.queue = p.queue AND k.type = p.type AND k.key = p.key"
    " AND k.id = p.id AND coalesce(k.until, 0) <= $3),"
    " counted AS (INSERT INTO holdfast.deltas"
    " (tenant, queue, group_name, completed, failed, canceled)"
    " SELECT tenant, queue, group_name, -count(*) FILTER (WHERE state = 'completed'),"
    " -count(*) FILTER (WHERE state = 'failed'), -count(*) FILTER (WHERE state = 'canceled')"
    " FROM past GROUP BY tenant, queue, group_name)"
    " SELECT count(*), max(keep_until) FROM past"
    for day in DAYS
}
DAY_EMPTY = {day: f"TRUNCATE holdfast.history_{day}" for day in DAYS}
REST = "rest"
PRUNE_JOBS = {
    place: f"DELETE FROM holdfast.history_{place} h USING (SELECT seq, keep_until"
    f" FROM holdfast.history_{place} WHERE keep_until <= $1 ORDER BY keep_until LIMIT $2) d"
    " WHERE h.seq = d.seq AND h.keep_until = d.keep_until"
    " RETURNING h.tenant, h.queue, h.type, h.key, h.id, h.state, h.group_name"
    for place in (REST, *map(str, DAYS))
}
# From its instant on, the key of a job that still runs is held by the job alone.
PRUNE_KEYS = (
    "WITH past AS (SELECT k.tenant, k.queue, k.type, k.key, EXISTS (SELECT FROM holdfast.jobs j"
    " WHERE j.tenant = k.tenant AND j.id = k.id AND j.queue = k.queue AND j.type = k.type"
    " AND j.key = k.key) AS alive FROM holdfast.keys k WHERE k.until IS NOT NULL AND k.until <= $1"
    " ORDER BY k.until LIMIT $2 FOR UPDATE),"
    " untimed AS (UPDATE holdfast.keys k SET until = NULL FROM past p WHERE p.alive"
    " AND k.tenant = p.tenant AND k.queue = p.queue AND k.type = p.type AND k.key = p.key),"
    " gone AS (DELETE FROM holdfast.keys k USING past p WHERE NOT p.alive"
    " AND k.tenant = p.tenant AND k.queue = p.queue AND k.type = p.type AND k.key = p.key)"
    " SELECT count(*) FROM past"
)
PRUNE_HOLDS = (
    "WITH gone AS (DELETE FROM holdfast.holds WHERE name IN"
    " (SELECT name FROM holdfast.holds WHERE until <= $1 ORDER BY until LIMIT $2"
    " FOR UPDATE SKIP LOCKED) RETURNING kind, tenant, part)"
    " INSERT INTO holdfast.deltas (tenant, group_name)"
    " SELECT DISTINCT g.tenant, CASE WHEN g.kind = 'group' THEN g.part END"
    " FROM gone g JOIN holdfast.tenants_with_settings r ON r.tenant = g.tenant"
)
PRUNE_COUNTS = (
    "WITH gone AS (DELETE FROM holdfast.counts WHERE (kind, tenant, part) IN (SELECT kind, tenant,"
    " part FROM holdfast.counts WHERE waiting = 0 AND scheduled = 0 AND enqueued = 0"
    " AND processing = 0 AND retrying = 0 AND completed = 0 AND failed = 0 AND canceled = 0"
    " AND NOT EXISTS (SELECT FROM holdfast.resting r WHERE r.tenant = counts.tenant"
    " AND r.kind = counts.kind AND r.part = counts.part)"
    " LIMIT $1) RETURNING kind, tenant)"
    " UPDATE holdfast.counts c SET queues = c.queues - g.queues, groups = c.groups - g.groups"
    " FROM (SELECT tenant, count(*) FILTER (WHERE kind = 'queue') AS queues,"
    " count(*) FILTER (WHERE kind = 'group') AS groups FROM gone GROUP BY tenant) g"
    " WHERE c.kind = 'tenant' AND c.tenant = g.tenant AND c.part = ''"
)
DELETE_OLD_CLAIMS = "SELECT holdfast.delete_old_claims($1)"
FIND_FULL_TENANTS = "SELECT holdfast.find_full_tenants($1, $2)"
RECOUNT_LINES = "SELECT holdfast.recount_lines()"
PRUNE_BUCKETS = (
    "DELETE FROM holdfast.buckets WHERE (kind, tenant, part) IN"
    " (SELECT kind, tenant, part FROM holdfast.buckets WHERE full_at <= $1 LIMIT $2)"
)
RECOUNT = "SELECT holdfast.recount()"
RECOUNT_PLATFORM = "SELECT holdfast.count_platform_running()"

# -- reads -----------------------------------------------------------------------------------------

ENDED = (
    "SELECT NOT EXISTS (SELECT FROM holdfast.jobs WHERE tenant = $1 AND id = $2)"
    f" WHERE {EXPECT.format('true')}"
)
WATCH_JOB = "SELECT holdfast.watch_job($1, $2, $3)"
WORKER = "SELECT worker FROM holdfast.jobs WHERE seq = $1"
OLDEST = (
    "SELECT run_at FROM holdfast.jobs WHERE gate <> 2 AND tenant = $1 AND queue = $2"
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
