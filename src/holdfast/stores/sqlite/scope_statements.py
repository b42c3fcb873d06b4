"""The statements of scopes: turns, counts, limits, rates, slots, settings and holds.

The conditions of partial indexes are written once, as in `statements.py`.
"""

from __future__ import annotations

from holdfast.stores.sqlite.statements import ASIDE, GATED, IN_ORDER

# -- turns -----------------------------------------------------------------------------------------

# Conditions of the partial indexes.
OPEN = "kind = 'queue' AND ready = 1"
TENANT_WITH_LINES = "kind = 'tenant' AND open = 1 AND line_count > 0"

TENANTS = (
    f"SELECT tenant FROM counts INDEXED BY tenants_turn WHERE {TENANT_WITH_LINES}"
    " ORDER BY turn LIMIT ?"
)
TENANT_OPEN = (
    f"SELECT turn FROM counts NOT INDEXED WHERE {TENANT_WITH_LINES} AND tenant = ? AND part = ''"
)
TENANT_TURN = "UPDATE counts SET turn = ? WHERE kind = 'tenant' AND tenant = ? AND part = ''"
OPEN_LINES = (
    f"SELECT part FROM counts INDEXED BY lines_turn WHERE {OPEN} AND tenant = ?"
    " ORDER BY turn LIMIT ?"
)
LINES_OF = (
    f"SELECT turn, part FROM counts NOT INDEXED WHERE {OPEN} AND tenant = ?"
    " AND part IN (SELECT value FROM json_each(?))"
)
LINE_TURN = (
    "UPDATE counts SET turn = ?, ring = max(ring, ?)"
    " WHERE kind = 'queue' AND tenant = ? AND part = ?"
)
RING = (
    f"SELECT ring, tenant FROM counts INDEXED BY lines_ring WHERE {OPEN} AND ring > 0 AND part = ?"
    " ORDER BY ring LIMIT ?"
)
OPEN_TURNS = (
    "SELECT tenant, turn FROM counts NOT INDEXED WHERE kind = 'tenant'"
    " AND tenant IN (SELECT value FROM json_each(?)) AND part = '' AND open = 1"
)
RING_SET = "UPDATE counts SET ring = ? WHERE kind = 'queue' AND tenant = ? AND part = ?"
# A tenant that opens comes back to the rings that it was taken out of.
RING_BACK = (
    "UPDATE counts INDEXED BY lines_out SET ring ="
    " (SELECT whole.turn FROM counts AS whole"
    " WHERE whole.kind = 'tenant' AND whole.tenant = ?1 AND whole.part = '')"
    f" WHERE {OPEN} AND ring = 0 AND tenant = ?1"
)

# -- aside at limits of the platform ---------------------------------------------------------------

_TURN_OF = (
    "coalesce((SELECT whole.turn FROM counts AS whole"
    " WHERE whole.kind = 'tenant' AND whole.tenant = {tenant} AND whole.part = ''), 0)"
)
WAITING = (
    f"SELECT turn, tenant, {_TURN_OF.format(tenant='aside.tenant')} FROM aside"
    " INDEXED BY aside_turn WHERE kind = ? AND part = ? AND queue = ? ORDER BY turn LIMIT ?"
)
WAITING_OF_TENANTS = (
    f"SELECT DISTINCT {_TURN_OF.format(tenant='aside.tenant')}, tenant FROM aside NOT INDEXED"
    " WHERE kind = ? AND part = ? AND tenant IN (SELECT value FROM json_each(?))"
    " AND queue IN (SELECT value FROM json_each(?))"
)
ANY_WAITING = (
    "SELECT 1 FROM aside INDEXED BY aside_turn WHERE kind = ? AND part = ?"
    " AND queue IN (SELECT value FROM json_each(?)) LIMIT 1"
)
WAITING_LINES = (
    "SELECT queue FROM aside INDEXED BY aside_line WHERE kind = ? AND part = ? AND tenant = ?"
    " AND queue > '' ORDER BY seen LIMIT ?"
)
WAITING_LINES_OF = (
    "SELECT queue FROM aside NOT INDEXED WHERE kind = ? AND part = ? AND tenant = ?"
    " AND queue IN (SELECT value FROM json_each(?)) ORDER BY seen LIMIT ?"
)
NEXT_WAITING = "SELECT part FROM aside WHERE kind = ? AND part > ? ORDER BY part LIMIT 1"
ASIDE_PUT = (
    "INSERT INTO aside (kind, part, tenant, queue, turn, seen)"
    f" VALUES (?1, ?2, ?3, ?4, {_TURN_OF.format(tenant='?3')}, ?5) ON CONFLICT DO NOTHING"
)
_ASIDE_ROW = "kind = ? AND part = ? AND tenant = ? AND queue = ?"
ASIDE_DROP = f"DELETE FROM aside WHERE {_ASIDE_ROW}"
ASIDE_TENANT_DROP = (
    "DELETE FROM aside WHERE kind = ?1 AND part = ?2 AND tenant = ?3 AND queue = ''"
    " AND NOT EXISTS (SELECT 1 FROM aside AS line"
    " WHERE line.kind = ?1 AND line.part = ?2 AND line.tenant = ?3 AND line.queue > '')"
)
ASIDE_TURN = f"UPDATE aside SET turn = ? WHERE {_ASIDE_ROW}"
ASIDE_SEEN = f"UPDATE aside SET seen = ? WHERE {_ASIDE_ROW}"
ASIDE_CLEAR = "DELETE FROM aside"
ASIDE_RECOUNT = tuple(
    "INSERT INTO aside (kind, part, tenant, queue, turn, seen)"
    f" SELECT DISTINCT 'type', type, tenant, {queue}, 0, 0 FROM jobs WHERE {ASIDE}"
    for queue in ("queue", "''")
)
LINE_ASIDE = (
    "UPDATE counts SET aside = ?, next_turn = ? WHERE kind = 'queue' AND tenant = ? AND part = ?"
)
JOBS_ASIDE = "UPDATE jobs SET gate = 2 WHERE seq IN (SELECT value FROM json_each(?))"
_OF_LINE = (
    f"FROM jobs INDEXED BY jobs_aside WHERE {ASIDE} AND queue = ? AND tenant = ? AND type = ?"
)
TYPE_ASIDE = (
    f"SELECT type FROM jobs INDEXED BY jobs_aside WHERE {ASIDE} AND queue = ? AND tenant = ?"
    " AND type > ? ORDER BY type LIMIT 1"
)
FIRST_ASIDE = f"SELECT priority, seq {_OF_LINE} ORDER BY priority DESC, seq LIMIT 1"
NEXT_ASIDE = f"SELECT seq, group_name {_OF_LINE} ORDER BY priority DESC, seq LIMIT ?"
# A tenant all of whose lines were aside keeps its turn; its open lines have come in just now.
TURN_BACK = (
    "UPDATE counts SET turn = ?1 WHERE kind = 'tenant' AND tenant = ?2 AND part = '' AND turn > ?1"
)
RINGS_BACK = (
    f"UPDATE counts INDEXED BY lines_turn SET ring = ?1 WHERE {OPEN} AND tenant = ?2 AND ring > ?1"
)
RUNNING_DROP = "DELETE FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
RUNNING_PUT = "INSERT INTO counts (kind, tenant, part, processing) VALUES (?, ?, ?, ?)"

# -- scopes ----------------------------------------------------------------------------------------

STATE_COLUMNS = (
    "waiting", "scheduled", "enqueued", "processing", "retrying", "completed", "failed", "canceled",
)  # fmt: skip
SUMMED = (*STATE_COLUMNS, "bytes", "blocked")
COUNT_ADD = (
    f"INSERT INTO counts (kind, tenant, part, turn, {', '.join(SUMMED)})"
    f" VALUES (?, ?, ?, ?{', ?' * len(SUMMED)}) ON CONFLICT (kind, tenant, part) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMMED)
    # A trigger compares, and gives this turn to a line that becomes ready.
    + ", next_turn = excluded.turn"
)
SLOT_ADD = (
    "INSERT INTO counts (kind, tenant, part, slots) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part) DO UPDATE SET slots = slots + excluded.slots"
)
TAKEN = "SELECT processing, slots FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
PART_COUNTS = (
    "SELECT queue_count, group_count FROM counts WHERE kind = 'tenant' AND tenant = ? AND part = ''"
)
PART_EXISTS = "SELECT 1 FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
SLOT_COUNT = "SELECT slot_count FROM counts WHERE kind = 'tenant' AND tenant = ? AND part = ''"
ALIVE = (
    "SELECT waiting + scheduled + enqueued + processing + retrying, bytes FROM counts"
    " WHERE kind = ? AND tenant = ? AND part = ?"
)
SLOTS_PAST = "SELECT count(*) FROM holds WHERE scope = ? AND until <= ?"
SLOT_NEXT = "SELECT until FROM holds WHERE scope = ? AND until > ? ORDER BY until LIMIT 1"
SLOT_NAMES = "SELECT name FROM holds WHERE scope = ? AND until > ? ORDER BY until LIMIT ?"
SLOTS_DROP = "DELETE FROM holds WHERE scope = ? AND until <= ?"
BUCKET = "SELECT full_at, rated FROM buckets WHERE kind = ? AND tenant = ? AND part = ?"
BUCKET_PUT = (
    "INSERT INTO buckets (kind, tenant, part, full_at, rated) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part)"
    " DO UPDATE SET full_at = excluded.full_at, rated = excluded.rated"
)
BUCKETS_OF = "SELECT part FROM buckets WHERE kind = 'group' AND tenant = ?"
BUCKET_BOUND = (
    "UPDATE buckets SET full_at = min(full_at, ?4), rated = ?5"
    " WHERE kind = ?1 AND tenant = ?2 AND part = ?3"
)
REOPEN_AT = "SELECT at FROM reopen WHERE kind = ? AND tenant = ? AND part = ?"
REOPEN_PUT = (
    "INSERT INTO reopen (kind, tenant, part, at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (kind, tenant, part) DO UPDATE SET at = min(at, excluded.at)"
)
REOPEN_PAST = "SELECT kind, tenant, part FROM reopen WHERE at > 0 AND at <= ? ORDER BY at LIMIT ?"
REOPEN_DROP = "DELETE FROM reopen WHERE kind = ? AND tenant = ? AND part = ?"
SCOPE_OPEN = "SELECT open, resting FROM counts WHERE kind = ? AND tenant = ? AND part = ?"
SCOPE_SET = (
    "UPDATE counts SET open = ?1, turn = ?2, next_turn = ?2, resting = ?3, looked = ?4"
    " WHERE kind = ?5 AND tenant = ?6 AND part = ?7"
)

# -- tiers -----------------------------------------------------------------------------------------

# Kinds in the table `reopen` that say what has to be looked at again. Their instant is 0.
LOOK_PREFIX = "tier/"
LOOK_PUT = (
    f"INSERT INTO reopen (kind, tenant, part, at) VALUES ('{LOOK_PREFIX}' || ?, ?, ?, 0)"
    " ON CONFLICT DO NOTHING"
)
LOOKS = (
    f"SELECT substr(kind, {len(LOOK_PREFIX) + 1}), tenant, part FROM reopen"
    f" WHERE kind >= '{LOOK_PREFIX}' AND kind < 'tier0' ORDER BY kind DESC LIMIT ?"
)
LOOK_DROP = f"DELETE FROM reopen WHERE kind = '{LOOK_PREFIX}' || ? AND tenant = ? AND part = ?"
RESTING_IN = (
    "SELECT kind, tenant, part FROM counts INDEXED BY counts_resting"
    " WHERE resting = ? AND kind = ? AND looked < ? ORDER BY looked LIMIT ?"
)
RESTING_OF = (
    "SELECT kind, tenant, part FROM counts INDEXED BY counts_looked"
    " WHERE resting IS NOT NULL AND tenant = ? AND looked < ? ORDER BY looked LIMIT ?"
)
LOOKED = "UPDATE counts SET looked = ? WHERE kind = ? AND tenant = ? AND part = ?"
SCOPE_REST = "UPDATE counts SET resting = ?, looked = ? WHERE kind = ? AND tenant = ? AND part = ?"
GROUP_RESTING = "SELECT resting FROM counts WHERE kind = 'group' AND tenant = ? AND part = ?"
TIER_USERS = "SELECT count(*) FROM settings INDEXED BY settings_tier WHERE tier = ?"
# A recount forgets what rests. These check all of it again.
ALL_TENANTS = "SELECT tenant FROM counts WHERE kind = 'tenant'"
ALL_LINES = "SELECT tenant, part FROM counts WHERE kind = 'queue' AND tenant > ''"
ALL_WAITING_GROUPS = f"SELECT DISTINCT tenant, group_name FROM jobs WHERE {GATED} AND gate = 1"

# -- groups ----------------------------------------------------------------------------------------

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
    " sum(state = 'enqueued' AND (gate <> 0 OR late = 1)) FROM jobs"
    f" WHERE {part} IS NOT NULL GROUP BY tenant, {part}, state"
    for kind, part in (("tenant", "''"), ("queue", "queue"), ("group", "group_name"))
)
RECOUNT_SLOTS = "SELECT name FROM holds WHERE scope IS NOT NULL"
RUNNING = (
    "SELECT json_array(tenant, part), processing FROM counts"
    " WHERE kind = 'queue' AND tenant > '' AND processing"
)
COUNTS_CLEAR = "DELETE FROM counts"

# -- names -----------------------------------------------------------------------------------------

SETTING = "SELECT name, value, version FROM settings WHERE name = ?"
SETTING_PUT = (
    "INSERT INTO settings (name, value, version, stamp, tier, changed, at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET value = excluded.value, version = excluded.version, stamp = excluded.stamp,"
    " tier = excluded.tier, changed = coalesce(excluded.changed, changed),"
    " at = coalesce(excluded.at, at)"
)
_STAMPED = "SELECT name, value, stamp, changed, at FROM settings WHERE stamp IS NOT NULL"
SETTINGS_SINCE = f"{_STAMPED} AND stamp > ?"
STAMPED = f"{_STAMPED} AND name = ?"
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
