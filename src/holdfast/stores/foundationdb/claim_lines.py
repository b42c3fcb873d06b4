"""The entries of one line in their order: those of READY, and those that wait aside for types."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.stores.foundationdb.layout import after
from holdfast.stores.foundationdb.rows import Candidate, candidate
from holdfast.stores.foundationdb.step import Step
from holdfast.stores.notifier import Line

WINDOW_MIN = 32
WINDOW_MAX = 2000
"""Entries of a line that are read at a time: enough that each of its claimers finds its own."""


def window_of(wanted: int, claimers: int) -> int:
    """How many entries of a line to read, so that each of its claimers finds its own."""
    return min(WINDOW_MAX, max(WINDOW_MIN, 2 * wanted * claimers))


class LineReader:
    """Reads on through a line, a window of entries at a time."""

    def __init__(
        self, step: Step, line: Line, window: int, types: Callable[[], Sequence[str]]
    ) -> None:
        self._step = step
        self._line = line
        self._window = window
        self._types = types
        """Names the types whose jobs aside are read, too."""
        self._begin = b""
        self.over = False
        self.empty = False
        """Whether READY has no entries."""
        self.empty_types: list[str] = []
        """Types of which no job is aside."""

    async def read(self) -> list[Candidate]:
        """The next entries of all that is read, by rank."""
        step, first = self._step, not self._begin
        types = self._types()
        prefixes = [step.keys.ready(*self._line)]
        prefixes += [step.keys.aside_jobs(*self._line, type) for type in types]
        spans = [(prefix + self._begin, after(prefix)) for prefix in prefixes]
        for span in spans[1:]:
            step.ask_range(*span, self._window)
        pages = [await step.range(*span, self._window, snapshot=True) for span in spans]
        if first:
            self.empty = not pages[0]
            self.empty_types = [
                type for type, page in zip(types, pages[1:], strict=True) if not page
            ]
        found, edges = [], []
        for prefix, page in zip(prefixes, pages, strict=True):
            found += [(key[len(prefix) :], value) for key, value in page]
            if len(page) == self._window:
                edges.append(page[-1][0][len(prefix) :])
        self.over = not edges
        if edges:
            # Behind the first edge there may be entries that were not read.
            edge = min(edges)
            found = [pair for pair in found if pair[0] <= edge]
            self._begin = edge + b"\0"
        if len(prefixes) > 1:
            found.sort()
        return [candidate(*pair) for pair in found]
