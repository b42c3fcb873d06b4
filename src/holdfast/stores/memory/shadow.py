"""Shadow: sources and the rows of their shadows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import msgspec

from holdfast.core.shadow import (
    Shadow,
    ShadowRead,
    ShadowRow,
    ShadowStep,
    SourceRow,
    is_repeat,
    totals,
)
from holdfast.stores.memory.enqueue import enqueue_all
from holdfast.stores.memory.layout import Tables


class Source:
    """One source, with its rows by id."""

    def __init__(self) -> None:
        self.row: SourceRow | None = None
        self.rows: dict[str, ShadowRow] = {}
        self.order: list[str] = []


class Sources:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._of: dict[str, dict[str, Source]] = {}

    def shadow(self, ask: ShadowStep | ShadowRead) -> Shadow:
        if isinstance(ask, ShadowStep):
            self._apply(ask)
            return Shadow(self._tables.now)
        return self._read(ask)

    def _apply(self, step: ShadowStep) -> None:
        """Applies the step, or changes nothing and raises."""
        tables, mine = self._tables, self._of.get(step.tenant, {})
        source = mine.get(step.source) or Source()
        if is_repeat(step, None if source.row is None else source.row.stamp):
            return
        named = (*(row.id for row in step.put), *step.drop)
        sizes = {id: source.rows[id].size for id in named if id in source.rows}
        rows, size = totals(step, source.row, sizes, len(mine))
        enqueue_all(tables, step.jobs)
        if step.state is None:
            del mine[step.source]
            return
        source.row = SourceRow(step.source, step.stamp, step.state, rows, size)
        for id in step.drop:
            if source.rows.pop(id, None) is not None:
                del source.order[bisect_left(source.order, id)]
        for row in step.put:
            if row.id not in source.rows:
                insort(source.order, row.id)
            source.rows[row.id] = msgspec.structs.replace(row, at=tables.now)
        self._of.setdefault(step.tenant, {})[step.source] = source

    def _read(self, read: ShadowRead) -> Shadow:
        now, mine = self._tables.now, self._of.get(read.tenant, {})
        if not read.source:
            names = sorted(name for name in mine if name > (read.after or ""))[: read.limit]
            return Shadow(now, [row for name in names if (row := mine[name].row) is not None])
        source = mine.get(read.source)
        if source is None or source.row is None:
            return Shadow(now)
        ids = [id for id in dict.fromkeys(read.ids) if id in source.rows]
        if read.after is not None:
            start = bisect_right(source.order, read.after)
            ids += source.order[start : start + read.limit]
        return Shadow(now, [source.row], [source.rows[id] for id in ids])
