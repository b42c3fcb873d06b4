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
EDGES = " UNION ALL ".join(
    f"SELECT seq, created_at, parents, edges FROM holdfast.{table} WHERE seq = ANY ($1)"
    " AND (parents IS NOT NULL OR edges IS NOT NULL)"
    for table in ("jobs", "history")
)
# The bytes that each journal adds to a page.
_EDGE_BYTES = " UNION ALL ".join(
    "SELECT j.seq, octet_length(split_part(e, E'\\x1f', 1))"
    " + octet_length(split_part(e, E'\\x1f', 2))"
    f" FROM holdfast.{table} j CROSS JOIN LATERAL unnest(j.edges) e WHERE j.seq = ANY ($1)"
    for table in ("jobs", "history")
)
BYTES = (
    "SELECT b.seq, sum(b.bytes)::bigint FROM (SELECT e.seq, octet_length(e.value) AS bytes"
    f" FROM holdfast.entries e WHERE e.seq = ANY ($1) UNION ALL {_EDGE_BYTES}) b GROUP BY b.seq"
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
    " + (SELECT count(*) FROM holdfast.jobs WHERE seq = $1 AND parents IS NOT NULL)"
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
# The sizes of journals, and by how much they have grown, which counts for the cap of the tenant.
JOURNALS_SAVE = (
    "WITH given AS (SELECT * FROM unnest($1::bigint[], $2::text[], $3::integer[])"
    " AS u(seq, journal, grown)), saved AS (UPDATE holdfast.jobs j SET journal = g.journal,"
    " size = j.size + g.grown FROM given g WHERE j.seq = g.seq"
    " RETURNING j.tenant, j.queue, g.grown),"
    " announced AS MATERIALIZED (SELECT holdfast.announce())"
    " INSERT INTO holdfast.deltas (tenant, queue, bytes) SELECT s.tenant, s.queue, sum(s.grown)"
    " FROM announced, saved s GROUP BY s.tenant, s.queue HAVING sum(s.grown) <> 0"
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
# Parts of edges of these tenants, in turn: so many that they have so many edges together.
RELEASING = (
    "SELECT r.seq, r.part, r.tenant, r.id, r.state, r.edges FROM unnest($1::text[])"
    " WITH ORDINALITY AS u(tenant, place) CROSS JOIN LATERAL (SELECT y.*,"
    " sum(cardinality(y.edges)) OVER (ORDER BY y.seq, y.part) - cardinality(y.edges) AS before FROM"
    " (SELECT * FROM holdfast.releasing x WHERE x.tenant = u.tenant ORDER BY x.seq, x.part"
    " LIMIT $2) y) r WHERE r.before < $2 ORDER BY u.place, r.seq, r.part"
)
# Notes jobs that are about to end or to be deleted: what is left of their edges after the first.
RELEASING_PUT = (
    "INSERT INTO holdfast.releasing (seq, part, tenant, id, state, edges)"
    " SELECT j.seq, p.part, j.tenant, j.id, u.state, p.edges"
    " FROM unnest($1::bigint[], $2::integer[], $3::text[]) AS u(seq, followed, state)"
    " CROSS JOIN LATERAL (SELECT * FROM holdfast.jobs x WHERE x.seq = u.seq LIMIT 1) j"
    " CROSS JOIN LATERAL holdfast.edge_parts(j.edges[u.followed + 1:]) p"
)
_PARTS = (
    "unnest($1::text[], $2::bigint[], $3::integer[]{more}) AS u(tenant, seq, part{names})"
    " WHERE r.tenant = u.tenant AND r.seq = u.seq AND r.part = u.part"
)
RELEASING_DROP = "DELETE FROM holdfast.releasing r USING " + _PARTS.format(more="", names="")
RELEASING_CUT = (
    "UPDATE holdfast.releasing r SET edges = r.edges[u.followed + 1:] FROM "
    + _PARTS.format(more=", $4::integer[]", names=", followed")
)
# The targets of edges, as far as they live and have the join, locked: nobody else ends, parks or
# wakes them meanwhile. NULL for those that somebody else has locked.
_TARGETS = (
    "SELECT u.place, t.seq, t.state, t.awaits, t.id, t.edges, coalesce(x.due, t.due),"
    " coalesce(x.failed, t.failed)"
    " FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS u(tenant, target, name,"
    " place) LEFT JOIN LATERAL (SELECT j.seq, j.state, j.awaits, j.id, j.edges[1:$4] AS edges,"
    " CASE u.name WHEN '' THEN j.parents[2] END AS due,"
    " CASE u.name WHEN '' THEN j.parents[3] END AS failed FROM holdfast.jobs j"
    " WHERE j.tenant = u.tenant AND j.id = u.target LIMIT 1 FOR UPDATE{skip}) t ON true"
    " LEFT JOIN LATERAL (SELECT o.due, o.failed FROM holdfast.joins o WHERE u.name <> ''"
    " AND o.seq = t.seq AND o.name = u.name LIMIT 1) x ON true"
    " WHERE coalesce(x.due, t.due) IS NOT NULL OR t.seq IS NULL AND EXISTS (SELECT FROM"
    " holdfast.jobs j WHERE j.tenant = u.tenant AND j.id = u.target) ORDER BY u.place"
)
TARGETS = _TARGETS.replace("{skip}", "")
TARGETS_UNLOCKED = _TARGETS.replace("{skip}", " SKIP LOCKED")
JOINS_SAVE = (
    "UPDATE holdfast.joins x SET due = u.due, failed = u.failed"
    " FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::integer[])"
    " AS u(seq, name, due, failed) WHERE x.seq = u.seq AND x.name = u.name"
)
PARENTS_SAVE = (
    "UPDATE holdfast.jobs j SET parents = ARRAY[j.parents[1], u.due, u.failed]"
    " FROM unnest($1::bigint[], $2::integer[], $3::integer[]) AS u(seq, due, failed)"
    " WHERE j.seq = u.seq"
)
