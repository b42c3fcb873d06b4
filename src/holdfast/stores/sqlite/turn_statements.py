"""The statements of turns: tenants and lines that can be claimed from, in their order."""

from __future__ import annotations

# Conditions of the partial indexes.
OPEN = "kind = 'queue' AND open = 1 AND enqueued > blocked"
TENANT_WITH_LINES = "kind = 'tenant' AND open = 1 AND line_count > 0"

TENANTS = (
    f"SELECT tenant FROM counts INDEXED BY tenants_turn WHERE {TENANT_WITH_LINES}"
    " ORDER BY turn LIMIT ?"
)
TENANT_OPEN = (
    f"SELECT turn FROM counts NOT INDEXED WHERE {TENANT_WITH_LINES} AND tenant = ? AND part = ''"
)
TENANT_TURN = "UPDATE counts SET turn = ? WHERE kind = 'tenant' AND tenant = ? AND part = ''"
LINES = (
    f"SELECT part FROM counts INDEXED BY lines_turn WHERE {OPEN} AND tenant = ?"
    " ORDER BY turn LIMIT ?"
)
LINE_OPEN = f"SELECT turn, part FROM counts NOT INDEXED WHERE {OPEN} AND tenant = ? AND part = ?"
TURN = "UPDATE counts SET turn = ? WHERE kind = 'queue' AND tenant = ? AND part = ?"
_RING = (
    "FROM counts AS line INDEXED BY lines_ring CROSS JOIN counts AS whole"
    " ON whole.kind = 'tenant' AND whole.tenant = line.tenant AND whole.part = ''"
    " WHERE line.kind = 'queue' AND line.open = 1 AND line.enqueued > line.blocked"
    " AND line.ring > 0 AND line.part = ?"
)
RING = f"SELECT line.ring, line.tenant, whole.turn, whole.open {_RING} ORDER BY line.ring LIMIT ?"
RING_SET = "UPDATE counts SET ring = ? WHERE kind = 'queue' AND tenant = ? AND part = ?"
# A tenant that opens comes back to the rings that it was taken out of.
RING_BACK = (
    "UPDATE counts INDEXED BY lines_out SET ring ="
    " (SELECT whole.turn FROM counts AS whole"
    " WHERE whole.kind = 'tenant' AND whole.tenant = ?1 AND whole.part = '')"
    f" WHERE {OPEN} AND ring = 0 AND tenant = ?1"
)
TENANTS_OF_QUEUE = f"SELECT count(*) {_RING} AND whole.open = 1"
