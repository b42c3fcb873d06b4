"""The journal of a job: what it remembers between its runs, and what it waits for. Pure.

A journal is a set of entries, each with a kind and a name, which a store keeps beside the job's
record and deletes with it. Handlers write entries under their lease (`Extension`, `Transition`), so
a worker that has lost its lease cannot. Signals come from outside, by the verb `signal`.

    kind      name                  value                     a second write
    step      the step's            its result                is ignored: the first one counts
    position  the cursor's          where it has come to      replaces the first
    signal    the signal's          the value that was sent   is ignored: the first one counts
    join      the join's            how many jobs it awaits   is ignored: the first one counts
    error     the attempt's number  what went wrong           replaces it; ERRORS_MAX are kept
    log       given by the store    lines of text             is another one; LOGS_MAX are kept

Jobs can be joined. An `Edge` of a job names another job of its tenant, the target, and one of the
target's joins: when the job ends, however it ends, the join awaits one job less. A job that was
enqueued with `parents` has the join "" and is `waiting` until that is complete. A running job makes
joins by entries, then parks until one of them is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from holdfast.core.bounds import (
    ENTRY_NAME_MAX,
    ERROR_BYTES_MAX,
    ERRORS_MAX,
    ID_MAX,
    JOIN_MAX,
    JOURNALS_BYTES_MAX,
    LEASE_JOURNAL_MAX,
    LOG_BYTES_MAX,
    LOGS_MAX,
    SIGNALS_MAX,
    SIGNALS_SHARE,
    STEP_BYTES_MAX,
    STEPS_BYTES_MAX,
    STEPS_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import Micros
from holdfast.core.errors import QUEUE_FULL_RETRY_S, HoldfastError, InvalidInput, QueueFull
from holdfast.core.mapped import most_of


class EntryKind(StrEnum):
    STEP = "step"
    POSITION = "position"
    SIGNAL = "signal"
    JOIN = "join"
    ERROR = "error"
    LOG = "log"


FIRST_COUNTS = frozenset({EntryKind.STEP, EntryKind.SIGNAL, EntryKind.JOIN})
"""Kinds of which a second entry with the same name is ignored."""
REMEMBERED = frozenset({EntryKind.STEP, EntryKind.POSITION, EntryKind.SIGNAL, EntryKind.JOIN})
"""Kinds that a lease brings back. The others are for people."""
OF_HANDLERS = frozenset(EntryKind) - {EntryKind.SIGNAL}
"""Kinds that a run may write."""

_BYTES_MAX = {
    EntryKind.ERROR: ERROR_BYTES_MAX,
    EntryKind.LOG: LOG_BYTES_MAX,
}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One entry. The store sets `at`, and the name of a log entry."""

    kind: EntryKind
    name: str
    value: bytes
    at: Micros = 0

    def checked(self) -> Entry:
        """Returns itself. Raises InvalidInput, which names the field, if it cannot be stored."""
        if self.kind is EntryKind.LOG:
            if self.name:
                raise InvalidInput(field="name", why="must be empty: the store numbers log entries")
        elif self.kind is EntryKind.ERROR:
            check_whole("name", _number(self.name), 0, ERRORS_MAX - 1)
        else:
            check_name("name", self.name, ENTRY_NAME_MAX)
        most = most_of(self.value, _BYTES_MAX.get(self.kind, STEP_BYTES_MAX))
        if len(self.value) > most:
            why = f"of {self.kind.value} {self.name!r} has {len(self.value)} bytes, at most {most}"
            raise InvalidInput(field="value", why=why)
        if self.kind is EntryKind.JOIN:
            check_whole("value", _number(self.value), 0, JOIN_MAX)
        return self


def _number(text: str | bytes) -> int | None:
    """The number that the text says in its shortest form; None if it says none."""
    digits = text if isinstance(text, str) else text.decode("ascii", "replace")
    short = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
    return int(digits) if short and len(digits) <= 9 else None


class OnFailure(StrEnum):
    """What happens to a waiting target when a parent of it ends without having completed."""

    FAIL = "fail"
    """The target fails with PARENT_FAILED at once."""
    RUN = "run"
    """The target runs all the same, when all of its parents have ended."""
    SKIP = "skip"
    """The target is canceled at once, without having run."""


class Edge(msgspec.Struct, frozen=True, gc=False):
    """Says which job awaits the end of this one."""

    target: str
    """The id of a job of the same tenant. An edge to a job that has ended does nothing."""
    join: str = ""
    on_failure: OnFailure = OnFailure.FAIL

    def checked(self) -> Edge:
        """Returns itself. Raises InvalidInput, which names the field, if it cannot be stored."""
        check_name("target", self.target, ID_MAX)
        if self.join:
            check_name("join", self.join, ENTRY_NAME_MAX)
        return self


class Join(msgspec.Struct, frozen=True, gc=False):
    """How far a join is: the value of its entry, as JSON, when it is read."""

    total: int
    left: int
    failed: int = 0
    """How many ended without having completed."""


_join = msgspec.json.Decoder(Join)


def join_of(entry: Entry) -> Join:
    """What a stored join says."""
    return _join.decode(entry.value)


def join_entry(name: str, join: Join, at: Micros) -> Entry:
    """A join in the form in which it is read."""
    return Entry(EntryKind.JOIN, name, msgspec.json.encode(join), at)


def new_join(name: str, number: int) -> Entry:
    """The entry that makes a join of so many jobs."""
    return Entry(EntryKind.JOIN, name, str(number).encode())


def await_signal(name: str) -> str:
    """What `Transition.awaits` says for a signal."""
    return f"{EntryKind.SIGNAL.value}:{name}"


def await_join(name: str) -> str:
    """What `Transition.awaits` says for a join."""
    return f"{EntryKind.JOIN.value}:{name}"


AWAITS_PARENTS = await_join("")
"""What a job awaits that was enqueued with parents."""
ENDS_WITH_PARENTS = "parents:"
"""The same, for a job that ends with them. A signal to the job makes it AWAITS_PARENTS."""


def awaits_of(parents: int, ends_with_them: bool) -> str | None:
    """What a new job awaits."""
    if not parents:
        return None
    return ENDS_WITH_PARENTS if ends_with_them else AWAITS_PARENTS


AWAITS_MAX = ENTRY_NAME_MAX + 16


def check_awaits(awaits: str) -> str:
    """The value if it names a signal or a join that a run has made."""
    kind, _, name = awaits.partition(":")
    if kind not in (EntryKind.SIGNAL.value, EntryKind.JOIN.value):
        raise InvalidInput(field="awaits", why=f"must be signal:NAME or join:NAME, got {awaits!r}")
    check_name("awaits", name, ENTRY_NAME_MAX)
    return awaits


class Signal(msgspec.Struct, frozen=True, gc=False):
    """A named value for one job. The first one with its name counts."""

    tenant: str
    id: str
    name: str
    value: bytes


class Signaled(msgspec.Struct, frozen=True):
    id: str
    stored: bool
    """False if an earlier signal of this name counts, or the signal was refused."""
    error: HoldfastError | None = None


def no_room(tenant: str, held: int, max_bytes: int | None, signal: Signal) -> QueueFull | None:
    """Why a tenant whose living jobs hold so many bytes takes no such signal; None if it does.

    Signals come from outside, so the cap of the tenant bounds them. A tenant at its cap must still
    be able to wake its jobs, or these would wait for ever: signals have as much room again. Steps
    are never refused because of the cap. What they did has happened, and without its result the
    next attempt would do it again. They count, so the tenant gets no further jobs meanwhile.
    """
    most = None if max_bytes is None else SIGNALS_SHARE * max_bytes
    if most is None or held + len(signal.value) <= most:
        return None
    return QueueFull(
        tenant=tenant, what="bytes", queued=held, max=most, retry_after_s=QUEUE_FULL_RETRY_S
    )


class Journal(msgspec.Struct, frozen=True):
    """What is stored beside the record of a job."""

    entries: Sequence[Entry] = ()
    edges: Sequence[Edge] = ()

    @property
    def bytes(self) -> int:
        """About how much it adds to a page."""
        edges = sum(len(edge.target) + len(edge.join) for edge in self.edges)
        return edges + sum(len(entry.value) for entry in self.entries)


def fitting(sizes: Iterable[int]) -> int:
    """How many journals of these sizes a page brings: those as far as the one that exceeds it."""
    number = total = 0
    for size in sizes:
        number, total = number + 1, total + size
        if total >= JOURNALS_BYTES_MAX:
            break
    return number


Key = tuple[EntryKind, str]
"""Kind and name: what identifies an entry in its journal."""


class Size(msgspec.Struct, frozen=True, gc=False):
    """How much of its share a journal uses. Stores keep it beside the entries."""

    steps: int = 0
    """Steps, positions and joins."""
    signals: int = 0
    bytes: int = 0
    """The values of all of these."""
    logs: int = 0
    """Log entries so far; the newest LOGS_MAX of them are kept."""

    @property
    def left_out(self) -> int:
        """How many entries a lease does not bring: none, or all of a large journal. Each counts
        with its value and the longest name.
        """
        entries = self.steps + self.signals
        return entries if self.bytes + entries * ENTRY_NAME_MAX > LEASE_JOURNAL_MAX else 0

    @property
    def overflow(self) -> str | None:
        """What is too much; None if it fits."""
        if self.signals > SIGNALS_MAX:
            return f"it has {SIGNALS_MAX} signals, and no more may be sent"
        if self.steps > STEPS_MAX:
            return f"it would have {self.steps} steps, at most {STEPS_MAX} are allowed"
        if self.bytes > STEPS_BYTES_MAX:
            return f"its steps would have {self.bytes} bytes, at most {STEPS_BYTES_MAX} are allowed"
        return None


def written(
    size: Size, known: Mapping[Key, int], entries: Iterable[Entry]
) -> tuple[list[Entry], Size]:
    """The entries that a store writes, and the new size of the journal. It writes none of them if
    that size overflows. `known` has the bytes of the entries that are stored under the same keys.
    """
    steps, signals, used, logs = size.steps, size.signals, size.bytes, size.logs
    lengths, fresh = dict(known), dict[Key, Entry]()
    for entry in entries:
        key = (entry.kind, entry.name)
        if entry.kind is EntryKind.LOG:
            key = (entry.kind, log_name(logs))
            logs += 1
        elif entry.kind in FIRST_COUNTS and key in lengths:
            continue
        elif entry.kind in REMEMBERED:
            used += len(entry.value) - lengths.get(key, 0)
            signals += entry.kind is EntryKind.SIGNAL and key not in lengths
            steps += entry.kind is not EntryKind.SIGNAL and key not in lengths
        lengths[key] = len(entry.value)
        fresh[key] = msgspec.structs.replace(entry, name=key[1])
    return list(fresh.values()), Size(steps, signals, used, logs)


def before_step(entries: Iterable[Entry], name: str) -> list[Entry] | None:
    """What a replay from this step starts with; None if there is no such step. Entries of the same
    instant as the step are not among them: their steps run again.
    """
    found = list(entries)
    until = next((one.at for one in found if (one.kind, one.name) == (EntryKind.STEP, name)), None)
    if until is None:
        return None
    earlier = (EntryKind.STEP, EntryKind.POSITION)
    return [
        entry
        for entry in found
        if entry.kind is EntryKind.SIGNAL or (entry.kind in earlier and entry.at < until)
    ]


def log_name(number: int) -> str:
    """The name of the log entry with this number, counted from 0: a new one replaces the oldest."""
    return str(number % LOGS_MAX)
