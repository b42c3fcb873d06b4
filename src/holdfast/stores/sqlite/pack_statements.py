"""The statements of packs, by name. `layout.py` draws their tables."""

from __future__ import annotations

IN_LINE = "taken < number"
"""The condition of the indexes of packs that wait."""

# Settings that were put since are not known here: then it is left to the writer.
POST = (
    "INSERT INTO posted (head, at, size, number, ids, bodies) SELECT ?, ?, ?, ?, ?, ? FROM heads"
    " WHERE scopes = ?"
)
SCOPES = "SELECT scopes FROM heads"
POSTED = (
    "SELECT n, head, at, size, number, ids, CASE WHEN number < ? THEN bodies END FROM posted"
    " ORDER BY n"
)
ANY_POSTED = "SELECT 1 FROM posted LIMIT 1"
POSTED_CLEAR = "DELETE FROM posted"

CONTENTS_MOVE = (
    "INSERT INTO contents (seq, head, at, ids, bodies)"
    " SELECT ?, head, at, ids, bodies FROM posted WHERE n = ?"
)
CONTENTS_INSERT = "INSERT INTO contents (seq, head, at, ids, ats, bodies) VALUES (?, ?, ?, ?, ?, ?)"
CONTENTS_DROP = "DELETE FROM contents WHERE seq = ?"

PACK_INSERT = (
    "INSERT INTO packs (seq, number, left, size, tenant, queue, type, priority, at, loose,"
    " first_id, last_id) VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
)
_PACK = (
    "SELECT packs.seq, packs.number, packs.taken, packs.left, packs.size, contents.head,"
    " contents.at, contents.ats, contents.ids, contents.bodies"
    " FROM packs CROSS JOIN contents ON contents.seq = packs.seq"
)
PACK = f"{_PACK} WHERE packs.seq = ?"
FIRST = (
    f"{_PACK} WHERE packs.taken < packs.number AND packs.queue = ? AND packs.tenant = ?"
    " ORDER BY packs.priority DESC, packs.seq LIMIT 1"
)
PACK_SAVE = "UPDATE packs SET taken = ?, left = ?, size = ? WHERE seq = ?"
PACK_DROP = "DELETE FROM packs WHERE seq = ?"

# Where an id may be.
_NAMED = (
    "SELECT packs.seq, packs.taken, contents.ids FROM packs INDEXED BY packs_name"
    " CROSS JOIN contents ON contents.seq = packs.seq WHERE packs.tenant = ?1"
)
NAMED_CLOSE = f"{_NAMED} AND loose = 0 AND last_id >= ?2 AND last_id < ?3 AND first_id <= ?2"
NAMED_LOOSE = f"{_NAMED} AND loose = 1 AND last_id >= ?2 AND first_id <= ?2"

TENANTS = "SELECT DISTINCT tenant FROM packs"
SEQS = "SELECT seq, left FROM packs WHERE {condition} ORDER BY seq {way}"
FRONT = (
    f"SELECT seq, number - taken FROM packs WHERE {IN_LINE} AND queue = ? AND tenant = ?"
    " ORDER BY priority DESC, seq"
)
OLDEST = f"SELECT at FROM packs WHERE {IN_LINE} AND tenant = ? AND queue = ? ORDER BY at LIMIT 1"
AHEAD = (
    "SELECT coalesce(sum(jobs), 0) FROM (SELECT number - taken AS jobs FROM packs"
    f" WHERE {IN_LINE} AND queue = ?1 AND tenant = ?2"
    " AND (priority > ?3 OR (priority = ?3 AND seq < ?4)) ORDER BY priority DESC, seq LIMIT ?5)"
)
COUNT = (
    "SELECT tenant, queue, sum(number - taken), sum(left - number + taken), sum(size) FROM packs"
    " GROUP BY tenant, queue"
)

# -- pieces ----------------------------------------------------------------------------------------

PIECE_INSERT = (
    "INSERT INTO pieces (seq, pack, number, token, until, worker, at, sizes, done)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PIECE = "SELECT seq, number, token, until, worker, at, done FROM pieces"
PIECE = f"{_PIECE} WHERE seq = ?"
PIECES_OF = "SELECT seq FROM pieces WHERE pack = ?"
PIECE_AT = "SELECT seq, number, done FROM pieces WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
PIECE_DROP = "DELETE FROM pieces WHERE seq = ?"
LAPSED = "SELECT pack, seq FROM pieces WHERE until <= ? ORDER BY until LIMIT 1"
HELD_BY = (
    "SELECT pieces.seq, pieces.pack, pieces.number, done, ids FROM pieces"
    " JOIN packs ON packs.seq = pieces.pack JOIN contents ON contents.seq = pieces.pack"
    " WHERE packs.tenant = ?1 AND (?2 IS NULL OR packs.queue = ?2)"
)
# What a completion has to know of its piece.
COMPLETING = (
    "SELECT pieces.seq, pieces.pack, pieces.number, token, until, sizes, done, head, ids"
    " FROM pieces CROSS JOIN contents ON contents.seq = pieces.pack"
    " WHERE pieces.seq <= ? ORDER BY pieces.seq DESC LIMIT 1"
)
PIECE_DONE = "UPDATE pieces SET done = ? WHERE seq = ?"
PACK_LESS = "UPDATE packs SET left = left - ? WHERE seq = ?"
PACK_LEFT = "SELECT left FROM packs WHERE seq = ?"
SIZES = "SELECT tenant, queue, sizes, done FROM pieces JOIN packs ON packs.seq = pieces.pack"

# -- rows ------------------------------------------------------------------------------------------

# The jobs of a pack as rows. What they share is bound once: ?1 begins a token, NULL for none.
ROWS_SHARED = 15
ROWS_INSERT = (
    "INSERT INTO jobs (seq, id, payload, size, run_at, created_at, updated_at, token, tenant,"
    " queue, type, codec, version, state, priority, attempt, fence, max_attempts, lease_until,"
    " worker, keep_us, rules) VALUES "
)


def rows_values(count: int) -> str:
    """The VALUES of so many jobs: five of each, after what all share."""
    rows = []
    for row in range(count):
        seq, id, payload, size, at = range(ROWS_SHARED + 1 + 5 * row, ROWS_SHARED + 6 + 5 * row)
        rows.append(
            f"(?{seq}, ?{id}, ?{payload}, ?{size}, ?{at}, ?{at}, coalesce(?15, ?{at}),"
            f" ?1 || ?{seq}, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13, ?14)"
        )
    return ", ".join(rows)
