"""The statements of journals, joins and edges, by name."""

from __future__ import annotations

from holdfast.stores.postgres.statements import EXPECT

# -- journals --------------------------------------------------------------------------------------

# What `journal.Stored` has after the job.
_ENTRIES = (
    "SELECT e.seq, e.kind, e.name, e.value, e.at, 0 AS total, 0 AS due, 0 AS failed"
    " FROM holdfast.entries e WHERE e.seq = ANY ($1)"
)
_JOINS = (
    "SELECT x.seq, 'join', x.name, NULL, x.at, x.total, x.due, x.failed"
    " FROM holdfast.joins x WHERE x.seq = ANY ($1)"
)
ENTRIES = f"{_ENTRIES} UNION ALL {_JOINS}"
REMEMBERED = f"{_ENTRIES} AND e.kind NOT IN ('error', 'log') UNION ALL {_JOINS}"
EDGES = (
    "SELECT seq, target, name, on_failure FROM holdfast.edges WHERE seq = ANY ($1)"
    " ORDER BY seq, number"
)
# The bytes that each journal adds to a page.
BYTES = (
    "SELECT b.seq, sum(b.bytes)::bigint FROM (SELECT e.seq, octet_length(e.value) AS bytes"
    " FROM holdfast.entries e WHERE e.seq = ANY ($1) UNION ALL"
    " SELECT x.seq, octet_length(x.target) + octet_length(x.name) FROM holdfast.edges x"
    " WHERE x.seq = ANY ($1)) b GROUP BY b.seq"
)
# What is stored under these keys: its bytes, and how many ends a join awaits yet.
KNOWN = (
    "SELECT u.seq, u.kind, u.name, found.length, found.due"
    " FROM unnest($1::bigint[], $2::text[], $3::text[]) AS u(seq, kind, name) CROSS JOIN LATERAL ("
    "SELECT octet_length(e.value) AS length, 0 AS due FROM holdfast.entries e"
    " WHERE e.seq = u.seq AND e.kind = u.kind AND e.name = u.name"
    " UNION ALL SELECT length(x.total::text), x.due FROM holdfast.joins x"
    " WHERE u.kind = 'join' AND x.seq = u.seq AND x.name = u.name LIMIT 1) found"
)
# The size of a journal whose own record of it cannot be read.
SIZE = (
    "SELECT (SELECT count(*) FROM holdfast.joins WHERE seq = $1)"
    " + count(*) FILTER (WHERE kind IN ('step', 'position')),"
    " count(*) FILTER (WHERE kind = 'signal'),"
    " coalesce(sum(octet_length(value)) FILTER (WHERE kind IN ('step', 'position', 'signal')), 0)"
    "::bigint, count(*) FILTER (WHERE kind = 'log') FROM holdfast.entries WHERE seq = $1"
)
ENTRIES_PUT = (
    "INSERT INTO holdfast.entries (seq, at, kind, name, value)"
    " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bytea[])"
    " ON CONFLICT (seq, kind, name) DO UPDATE SET value = excluded.value, at = excluded.at"
)
JOINS_PUT = (
    "INSERT INTO holdfast.joins (seq, at, name, total, due)"
    " SELECT u.*, u.total FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::integer[])"
    " AS u(seq, at, name, total)"
)
JOURNALS_SAVE = (
    "UPDATE holdfast.jobs j SET journal = u.journal, size = u.size"
    " FROM unnest($1::bigint[], $2::text[], $3::integer[]) AS u(seq, journal, size)"
    " WHERE j.seq = u.seq"
)

LEFTOVERS_PUT = "INSERT INTO holdfast.leftovers SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING"

# -- joins -----------------------------------------------------------------------------------------

# Only one call at a time follows edges, so that a join is written once for all that it finds.
_LOCK = "hashtext('holdfast.release'), 0"
LOCK = f"SELECT set_config('lock_timeout', $1, true), pg_advisory_xact_lock({_LOCK})"
TRY_LOCK = f"SELECT pg_try_advisory_xact_lock({_LOCK}) WHERE {EXPECT.format('true')}"
ANY_LEFT = "SELECT EXISTS (SELECT FROM holdfast.releasing ORDER BY tenant, seq LIMIT 1)"
# The next tenants with edges to follow, each found by one look into the index.
RELEASING_TENANTS = (
    "WITH RECURSIVE next AS ((SELECT r.tenant FROM holdfast.releasing r WHERE r.tenant > $1"
    " ORDER BY r.tenant LIMIT 1) UNION ALL SELECT (SELECT r.tenant FROM holdfast.releasing r"
    " WHERE r.tenant > n.tenant ORDER BY r.tenant LIMIT 1) FROM next n WHERE n.tenant IS NOT NULL)"
    " SELECT n.tenant FROM next n WHERE n.tenant IS NOT NULL LIMIT $2"
)
# What `joins.Parent` has.
RELEASING = (
    "SELECT r.seq, r.edges, r.followed, r.tenant, r.id, r.state FROM unnest($1::text[])"
    " WITH ORDINALITY AS u(tenant, place) CROSS JOIN LATERAL (SELECT * FROM holdfast.releasing x"
    " WHERE x.tenant = u.tenant ORDER BY x.seq LIMIT $2) r ORDER BY u.place, r.seq"
)
RELEASING_PUT = (
    "INSERT INTO holdfast.releasing (seq, edges, followed, tenant, id, state)"
    " SELECT * FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[], $5::text[],"
    " $6::text[]) ON CONFLICT (seq) DO UPDATE SET followed = excluded.followed"
)
RELEASING_DROP = "DELETE FROM holdfast.releasing WHERE seq = ANY ($1)"
# The targets of portions of edges, as far as they live and have the join, locked: nobody else ends,
# parks or wakes them meanwhile. NULL for those that somebody else has locked.
_TARGETS = (
    "SELECT p.place, e.number, e.on_failure, e.name, t.seq, t.state, t.awaits, t.id, t.edges,"
    " x.due, x.failed"
    " FROM unnest($1::bigint[], $2::integer[], $3::integer[], $4::text[]) WITH ORDINALITY"
    " AS p(seq, low, high, tenant, place)"
    " JOIN LATERAL (SELECT * FROM holdfast.edges o WHERE o.seq = p.seq AND o.number >= p.low"
    " AND o.number < p.high ORDER BY o.number LIMIT p.high - p.low) e ON true"
    " LEFT JOIN LATERAL (SELECT j.seq, j.state, j.awaits, j.id, j.edges FROM holdfast.jobs j"
    " WHERE j.tenant = p.tenant AND j.id = e.target LIMIT 1 FOR UPDATE{skip}) t ON true"
    " LEFT JOIN LATERAL (SELECT o.due, o.failed FROM holdfast.joins o WHERE o.seq = t.seq"
    " AND o.name = e.name LIMIT 1) x ON true"
    " WHERE x.due IS NOT NULL OR t.seq IS NULL AND EXISTS (SELECT FROM holdfast.jobs j"
    " WHERE j.tenant = p.tenant AND j.id = e.target) ORDER BY p.place, e.number"
)
TARGETS = _TARGETS.replace("{skip}", "")
TARGETS_UNLOCKED = _TARGETS.replace("{skip}", " SKIP LOCKED")
JOINS_SAVE = (
    "UPDATE holdfast.joins x SET due = u.due, failed = u.failed"
    " FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::integer[])"
    " AS u(seq, name, due, failed) WHERE x.seq = u.seq AND x.name = u.name"
)
