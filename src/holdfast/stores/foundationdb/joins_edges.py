"""The edges of jobs, as they are stored: few and short ones in the row, others in EDGES."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.journal import Edge, OnFailure
from holdfast.stores.foundationdb.layout import EDGES_PART, Space, seq_bytes, text
from holdfast.stores.foundationdb.rows import Row, pack
from holdfast.stores.foundationdb.rows_parent import Parent, parent_of
from holdfast.stores.foundationdb.step import Step

_edges = msgspec.msgpack.Decoder(list[tuple[str, str, str]])
_HOW = frozenset(how.value for how in OnFailure)


def put_edges(step: Step, row: Row, edges: Sequence[Edge]) -> None:
    """Writes the edges of a new job, if its row does not have them."""
    prefix = step.keys.edges(row.tenant, row.seq)
    for start in range(0, 0 if row.few else len(edges), EDGES_PART):
        part = [
            (edge.target, edge.join, edge.on_failure.value)
            for edge in edges[start : start + EDGES_PART]
        ]
        step.put(prefix + (start // EDGES_PART).to_bytes(2, "big"), pack(part))


def _parts(step: Step, job: Row | Parent, start: int, end: int) -> list[bytes]:
    """The keys that have these edges of a job."""
    if job.few or end <= start:
        return []
    prefix = step.keys.edges(job.tenant, job.seq)
    places = range(start // EDGES_PART, (end - 1) // EDGES_PART + 1)
    return [prefix + place.to_bytes(2, "big") for place in places]


def ask_edges(step: Step, job: Row | Parent, start: int, end: int) -> None:
    """Requests what `read_edges` reads."""
    step.ask(_parts(step, job, start, end))


async def read_edges(step: Step, job: Row | Parent, start: int, end: int) -> list[Edge]:
    """The edges of a job from one place up to another, but for those that cannot be read."""
    if job.few:
        return [_edge(*each) for each in job.few[start:end]]
    found: list[Edge] = []
    first = start // EDGES_PART * EDGES_PART
    values = await step.get_many(_parts(step, job, start, end), snapshot=True)
    for place, value in enumerate(values):
        try:
            part = [] if value is None else _edges.decode(value)
        except (msgspec.MsgspecError, UnicodeError):
            continue
        offset = first + place * EDGES_PART
        found += [_edge(*each) for each in part[max(0, start - offset) : end - offset]]
    return found


def _edge(target: str, join: str, how: str) -> Edge:
    """An edge; one that does not say what a failure does has the default."""
    return Edge(target, join, OnFailure(how) if how in _HOW else OnFailure.FAIL)


def releasing_key(step: Step, job: Row | Parent) -> bytes:
    return step.keys.all(Space.RELEASING, text(job.tenant), seq_bytes(job.seq))


async def drop_edges(step: Step, row: Row) -> None:
    """Deletes the edges of an ended job, or has that done by those who follow the rest of them."""
    key = releasing_key(step, row)
    found = await step.get(key)
    parent = None if found is None else parent_of(found)
    if parent is not None:
        parent.gone = True
        step.put(key, pack(parent))
    elif not row.few:
        step.clear_under(step.keys.edges(row.tenant, row.seq))
