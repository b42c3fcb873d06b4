"""Whose turn it is among tenants and their lines.

Weighted deficit round robin over tenants: in its turn a tenant takes as many jobs as its weight, or
a multiple of it (`scope.rounds`), from its lines in turn, and goes to the end. So many queues give
a tenant no more than one. A turn that a full claim cut short goes on with the next claim. A tenant
or a line ranks by the version at which it got ready jobs, which its pointer holds, or at which this
store last served it, which only the store knows: stores go round independently, and nothing is
written for it. Which tenants and lines a claim reads is in `fairness_lines.py`.
"""

from __future__ import annotations

from typing import Any

from holdfast.stores.notifier import Line

REMEMBERED_MAX = 1000
"""Selections of lines, and turns cut short, that a store remembers."""
SERVED_MAX = 20_000
"""Tenants, and lines, of which a store remembers when it last served them."""

Selection = tuple[tuple[str, ...] | None, tuple[str, ...] | None]
"""Tenants and queues, as a claim names them."""
Rank = tuple[int, int]
"""A version, and a number of the store's own within it."""


class Turns:
    """What one store knows of its turns. Any thread may ask."""

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}
        self._stopped: dict[Selection, bytes] = {}
        self._served: dict[Line | str, Rank] = {}
        self._turn = 0

    def rank(self, one: Line | str, since: int) -> Rank:
        """The rank of a tenant among tenants, or of a line among lines; the lowest is next."""
        return max((since, 0), self._served.get(one, (0, 0)))

    def next_rank(self, version: int) -> Rank:
        """The rank of one that is served now: behind all others."""
        self._turn += 1
        return version, self._turn

    def allowance(self, tenant: str, quota: int) -> int:
        """How many jobs the tenant may take in this turn. Asking changes nothing."""
        return self._credit.get(tenant, quota)

    def served(self, ranks: dict[Line | str, Rank], left: dict[str, int]) -> None:
        """Records tenants and lines whose turns have ended, and what is left of those cut short."""
        if len(self._served) >= 2 * SERVED_MAX:
            self._served.clear()
        self._served.update(ranks)
        for one in ranks:
            if isinstance(one, str):
                self._credit.pop(one, None)
        bounded(self._credit)
        self._credit.update(left)

    def place(self, selection: Selection) -> bytes | None:
        """The key after which the next claim of a selection reads, where it has too many lines to
        read them all.
        """
        return self._stopped.get(selection)

    def stopped(self, selection: Selection, place: bytes | None) -> None:
        if place is None:
            self._stopped.pop(selection, None)
        else:
            bounded(self._stopped)
            self._stopped[selection] = place


def bounded(remembered: dict[Any, Any]) -> None:
    """Empties a dictionary that has grown to its bound; what it held is only a hint."""
    if len(remembered) >= REMEMBERED_MAX:
        remembered.clear()
