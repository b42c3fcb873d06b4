"""What a run of the mix found, as it is written to JSON and read again. Rates are jobs a second."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

OURS = "holdfast"
BESIDE = "beside"
"""Another checkout of Holdfast."""
SET = "platform"
"""Holdfast with limits over all tenants that hold nothing back."""
BEHIND = "behind-50"
"""Holdfast with all of its work behind one running limit over all tenants."""
HOLDFAST = (OURS, BESIDE, SET, BEHIND)
"""Contestants that are Holdfast, in the order of the tables."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One shape of the mix."""

    store: str
    tenants: int
    concurrency: int
    limits: bool

    def told(self) -> str:
        limits = "limits" if self.limits else "no limits"
        return f"{self.store}, {self.tenants:,} tenants, concurrency {self.concurrency}, {limits}"


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What one contestant did in one cell. Lists have one entry for each round; medians count."""

    contestant: str
    cell: Cell
    enqueue: list[float] = []
    drain: list[float] = []
    """From the first handler's start to the last one's end."""
    settled: list[float] = []
    """To the answer of the store that settles the last job: only Holdfast tells it."""
    worker_us: list[float] = []
    engine_us: list[float] = []
    failed: list[str] = []


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A contestant, as the report names it."""

    name: str
    version: str = ""
    settings: str = ""


class Mix(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of one run of the mix."""

    entries: list[Entry] = []
    rows: list[Row] = []
    stores: dict[str, str] = {}
    """The settings of each store."""

    def row(self, contestant: str, cell: Cell) -> Row:
        """The row of this contestant in this cell, made if there is none."""
        for one in self.rows:
            if one.contestant == contestant and one.cell == cell:
                return one
        made = Row(contestant=contestant, cell=cell)
        self.rows.append(made)
        return made

    def of(self, contestant: str) -> dict[Cell, Row]:
        return {one.cell: one for one in self.rows if one.contestant == contestant}

    def peers(self) -> Iterator[Row]:
        return (one for one in self.rows if one.contestant not in HOLDFAST)
