"""The statements of scopes: turns, counts, limits, rates, slots, settings and holds.

The conditions of partial indexes are written once, as in `statements.py`.
"""

from __future__ import annotations

from holdfast.stores.sqlite.statements import GATED, IN_ORDER

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
SCOPE_SET = (
    "UPDATE counts SET open = ?1, turn = ?2, next_turn = ?2"
    " WHERE kind = ?3 AND tenant = ?4 AND part = ?5"
)

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
