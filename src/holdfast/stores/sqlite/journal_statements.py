"""The statements of journals, joins and edges, by name."""

from __future__ import annotations

_OF = "WHERE seq IN (SELECT value FROM json_each(?))"

# -- journals --------------------------------------------------------------------------------------

ENTRIES = f"SELECT seq, kind, name, value, at FROM entries {_OF}"
REMEMBERED = f"{ENTRIES} AND kind IN ('step', 'position', 'signal')"
JOINS = (
    "SELECT seq, name, total, due, failed, at FROM joins WHERE seq IN"
    " (SELECT value FROM json_each(?1))"
    " UNION ALL SELECT seq, '', parents, parents_due, parents_failed, created_at FROM jobs"
    " WHERE seq IN (SELECT value FROM json_each(?1)) AND parents IS NOT NULL"
)
EDGES = f"SELECT seq, targets FROM edges {_OF} ORDER BY seq, number"
# The bytes that each journal adds to a page.
_SEQS = "SELECT value FROM json_each(?1)"
BYTES = (
    f"SELECT seq, sum(bytes) FROM (SELECT seq, length(value) AS bytes FROM entries"
    f" WHERE seq IN ({_SEQS}) UNION ALL SELECT seq, length(targets) FROM edges"
    f" WHERE seq IN ({_SEQS})) GROUP BY seq"
)
# What is stored under the keys of a call: a list of [kind, name].
KNOWN = (
    "SELECT entries.kind, entries.name, length(entries.value) FROM json_each(?) AS asked"
    " CROSS JOIN entries ON entries.seq = ? AND entries.kind = json_extract(asked.value, '$[0]')"
    " AND entries.name = json_extract(asked.value, '$[1]')"
)
KNOWN_JOINS = (
    "SELECT 'join', name, length(total) FROM joins"
    " WHERE seq = ? AND name IN (SELECT value FROM json_each(?))"
)
ENTRY_PUT = (
    "INSERT INTO entries (seq, kind, name, value, at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (seq, kind, name) DO UPDATE SET value = excluded.value, at = excluded.at"
)
JOIN_INSERT = "INSERT INTO joins (seq, name, total, due, at) VALUES (?, ?, ?, ?, ?)"
JOURNAL_SAVE = "UPDATE jobs SET journal = ?, size = ? WHERE seq = ?"
HAS_SIGNAL = "SELECT 1 FROM entries WHERE seq = ? AND kind = 'signal' AND name = ?"
IS_COMPLETE = (
    "SELECT 1 FROM joins WHERE seq = ?1 AND name = ?2 AND due = 0"
    " UNION ALL SELECT 1 FROM jobs WHERE seq = ?1 AND ?2 = '' AND parents_due = 0"
)
# The size of a journal whose own record of it cannot be read.
SIZE = (
    "SELECT (SELECT count(*) FROM joins WHERE seq = ?1)"
    " + (SELECT count(parents) FROM jobs WHERE seq = ?1)"
    " + (SELECT count(*) FROM entries WHERE seq = ?1 AND kind IN ('step', 'position')),"
    " (SELECT count(*) FROM entries WHERE seq = ?1 AND kind = 'signal'),"
    " (SELECT coalesce(sum(length(value)), 0) FROM entries"
    " WHERE seq = ?1 AND kind IN ('step', 'position', 'signal')),"
    " (SELECT count(*) FROM entries WHERE seq = ?1 AND kind = 'log')"
)
DROP = tuple(f"DELETE FROM {table} {_OF}" for table in ("entries", "joins", "edges"))
LEFTOVER_PUT = "INSERT INTO leftovers (seq, weight) VALUES (?, ?)"
LEFTOVERS = "SELECT seq, weight FROM leftovers ORDER BY seq LIMIT ?"
LEFTOVERS_DROP = f"DELETE FROM leftovers {_OF}"

# -- joins -----------------------------------------------------------------------------------------

EDGES_INSERT = "INSERT INTO edges (seq, number, targets) VALUES (?, ?, ?)"
EDGES_FROM = (
    "SELECT number, targets FROM edges WHERE seq = ? AND number > ? AND number < ? ORDER BY number"
)
# The jobs with these ids, as `joins_follow._Target` reads them.
_TARGET = (
    "SELECT jobs.seq, jobs.tenant, jobs.id, jobs.queue, jobs.type, jobs.group_name, jobs.state,"
    " jobs.awaits, jobs.run_at, jobs.attempt, jobs.fence, jobs.late, {due} + 0, {failed} + 0"
    " FROM json_each(?1) AS asked"
    " CROSS JOIN jobs INDEXED BY jobs_name ON jobs.tenant = ?2 AND jobs.id = asked.value"
)
CHILDREN = (
    f"{_TARGET.format(due='jobs.parents_due', failed='jobs.parents_failed')}"
    " AND jobs.parents IS NOT NULL"
)
TARGETS = (
    f"{_TARGET.format(due='joins.due', failed='joins.failed')}"
    " CROSS JOIN joins ON joins.seq = jobs.seq AND joins.name = ?3"
)
MAKE_READY, MAKE_CHILD_READY = (
    f"UPDATE jobs SET state = ?, run_at = ?, updated_at = ?, gate = ?, awaits = NULL{more} {_OF}"
    for more in ("", ", parents_due = 0, parents_failed = ?")
)
PARENTS_SAVE = f"UPDATE jobs SET parents_due = ?, parents_failed = ? {_OF}"
JOIN_SAVE = "UPDATE joins SET due = ?, failed = ? WHERE seq = ? AND name = ?"
# Jobs whose edges are to be followed yet.
RELEASING_TENANT = "SELECT tenant FROM releasing WHERE tenant > ? ORDER BY tenant LIMIT 1"
RELEASING = (
    "SELECT seq, tenant, id, state, edges + 0, followed + 0, gone FROM releasing WHERE tenant = ?"
    " ORDER BY seq LIMIT ?"
)
RELEASING_ANY = "SELECT 1 FROM releasing LIMIT 1"
RELEASING_PUT = (
    "INSERT INTO releasing (seq, tenant, id, state, edges, followed, gone)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (tenant, seq) DO UPDATE SET followed = excluded.followed"
)
RELEASING_GONE = "UPDATE releasing SET gone = 1 WHERE tenant = ? AND seq = ?"
RELEASING_DROP = "DELETE FROM releasing WHERE tenant = ? AND seq = ?"
# Of these ended jobs, those that a living job may still read, or that have edges to follow.
WANTED = (
    "SELECT seq FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) AND (EXISTS ("
    "SELECT 1 FROM edges"
    " CROSS JOIN json_each(CASE WHEN json_valid(edges.targets) THEN edges.targets END) AS edge"
    " CROSS JOIN jobs AS target INDEXED BY jobs_name ON target.tenant = jobs.tenant AND"
    " target.id = CASE edge.type WHEN 'array' THEN json_extract(edge.value, '$[0]') END"
    " WHERE edges.seq = jobs.seq"
    " AND target.state IN ('waiting', 'scheduled', 'enqueued', 'processing', 'retrying'))"
    " OR EXISTS (SELECT 1 FROM releasing"
    " WHERE releasing.tenant = jobs.tenant AND releasing.seq = jobs.seq))"
)
