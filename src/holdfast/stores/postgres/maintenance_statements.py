"""The statements of upkeep: expired jobs, what is past its keeping, and counting anew."""

from __future__ import annotations

from holdfast.stores.postgres.statements import LIVE

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
    day: "WITH past AS MATERIALIZED (SELECT tenant, queue, type, key, id, state, group_name, seq,"
    f" journal, keep_until FROM holdfast.history_{day} WHERE keep_until > $1 ORDER BY keep_until"
    " FETCH FIRST ($2::bigint) ROWS WITH TIES),"
    " freed AS (DELETE FROM holdfast.keys k USING past p WHERE p.key IS NOT NULL"
    " AND k.tenant = p.tenant AND k.queue = p.queue AND k.type = p.type AND k.key = p.key"
    " AND k.id = p.id AND coalesce(k.until, 0) <= $3), forgotten AS (INSERT INTO"
    " holdfast.leftovers SELECT seq FROM past WHERE journal IS NOT NULL ON CONFLICT DO NOTHING),"
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
PRUNED = "h.tenant, h.queue, h.type, h.key, h.id, h.state, h.group_name, h.seq, h.journal"
PRUNE_JOBS = {
    place: f"DELETE FROM holdfast.history_{place} h USING (SELECT seq, keep_until"
    f" FROM holdfast.history_{place} WHERE keep_until <= $1 AND edges IS NULL"
    " ORDER BY keep_until LIMIT $2) d"
    " WHERE h.seq = d.seq AND h.keep_until = d.keep_until"
    f" RETURNING {PRUNED}"
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

# -- journals and edges ----------------------------------------------------------------------------

# Ended jobs with edges, which are pruned by themselves.
PARENTS_PAST = (
    "SELECT seq, cardinality(edges) FROM holdfast.history"
    " WHERE edges IS NOT NULL AND keep_until <= $1 ORDER BY keep_until LIMIT $2"
)
# Those that a living job may still read.
PARENTS_WANTED = (
    "SELECT h.seq FROM holdfast.history h WHERE h.seq = ANY ($1) AND EXISTS ("
    "SELECT FROM unnest(h.edges) e CROSS JOIN LATERAL (SELECT FROM holdfast.jobs j"
    " WHERE j.tenant = h.tenant AND j.id = split_part(e, E'\\x1f', 1) LIMIT 1) t)"
)
PARENTS_KEEP = "UPDATE holdfast.history SET keep_until = $2 WHERE seq = ANY ($1)"
PARENTS_PRUNE = (
    "DELETE FROM holdfast.history h WHERE h.seq = ANY ($1) AND h.keep_until <= $2"
    f" RETURNING {PRUNED}"
)
DAY_HAS_PARENTS = {
    day: f"SELECT EXISTS (SELECT FROM holdfast.history_{day} WHERE edges IS NOT NULL)"
    for day in DAYS
}
LEFTOVERS = "SELECT seq FROM holdfast.leftovers ORDER BY seq LIMIT $1"
LEFTOVERS_DROP = tuple(
    f"DELETE FROM holdfast.{table} WHERE ctid = ANY (ARRAY(SELECT x.ctid FROM unnest($1::bigint[])"
    f" AS u(seq) CROSS JOIN LATERAL (SELECT o.ctid FROM holdfast.{table} o WHERE o.seq = u.seq) x"
    " LIMIT $2))"
    for table in ("entries", "joins")
)
LEFTOVERS_DONE = (
    "DELETE FROM holdfast.leftovers l WHERE l.seq = ANY ($1)"
    " AND NOT EXISTS (SELECT FROM holdfast.entries e WHERE e.seq = l.seq)"
    " AND NOT EXISTS (SELECT FROM holdfast.joins x WHERE x.seq = l.seq)"
)
