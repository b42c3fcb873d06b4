"""The shapes that travel between a remote store and the service; both sides read this file.

    GET  /v1/store          what is there, and what this token may
    POST /v1/store/{verb}   a verb of the contract; its values in, its results out

Bodies and answers are msgpack, made of the contract's own structs, so bytes stay bytes. An error is
{code, facts, text} and becomes the same class again. A verb that asks for different rights, as it
is used, is several routes here: rights are a matter of the service's table, not of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.core import errors
from holdfast.core.bounds import PAGE_MAX
from holdfast.core.capabilities import Capabilities
from holdfast.core.clock import Micros
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.core.job import By, JobRecord, Lease, NewJob
from holdfast.core.journal import Journal, Signal, Signaled
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import Explanation, ScopeKind
from holdfast.core.shadow import Shadow, ShadowRead, ShadowStep
from holdfast.store import (
    Acked,
    Canceled,
    Change,
    Changed,
    Claim,
    Enqueued,
    EventPage,
    Extended,
    Extension,
    Find,
    Hold,
    Lapsed,
    Page,
    Pruned,
    Put,
    Ref,
    Setting,
    Take,
    Tally,
    Watch,
)

FORMAT = 5
"""Grows when a service and a client of different versions would misunderstand each other."""
FORMAT_HEADER = "Holdfast-Format"
"""Every call says which format it speaks."""
PATH = "/v1/store"
MEDIA = "application/msgpack"
PLAIN = (str, int, float, bool, type(None))

T = TypeVar("T")


def other_format(found: int) -> str:
    """What the other side is told that speaks another format."""
    return f"format {FORMAT} of the wire, only {found}: run one version of holdfast on both sides"


# -- errors ----------------------------------------------------------------------------------------


class WireError(msgspec.Struct, frozen=True):
    """An error, as it travels."""

    code: str
    facts: dict[str, Any]
    text: str


def _tree(root: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    yield root
    for kind in root.__subclasses__():
        # The service has some of its own beside the tree; nobody here could catch them by class.
        if kind.__module__ == errors.__name__:
            yield from _tree(kind)


CLASSES: dict[str, type[HoldfastError]] = {kind.code: kind for kind in _tree(HoldfastError)}


def error_out(error: HoldfastError) -> WireError:
    """The error for the way; what is not plain among its facts goes as text."""
    facts = {
        name: value if isinstance(value, PLAIN) else str(value)
        for name, value in error.facts.items()
    }
    return WireError(error.code, facts, str(error))


def error_in(one: WireError, store: str) -> HoldfastError:
    """The error again; a code that is not known here, or other facts, still tell their text."""
    kind = CLASSES.get(one.code)
    if kind is not None:
        error = kind(**one.facts)
        try:
            str(error)
        except (KeyError, ValueError, TypeError):
            pass  # Another version of the error, with other facts.
        else:
            return error
    return StoreError(store=store, why=f"{one.code}: {one.text}")


def _out(value: Any) -> Any:
    if isinstance(value, HoldfastError):
        return error_out(value)
    raise NotImplementedError(f"cannot send {type(value).__name__}")


def _in(kind: Any, value: Any) -> Any:
    if kind is HoldfastError:
        return error_in(msgspec.convert(value, WireError), "the service")
    raise NotImplementedError(f"cannot read {kind!r}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_out)
encode = _encoder.encode


# -- shapes that the contract has as arguments -----------------------------------------------------


class KnownCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the service takes the caller for."""

    name: str
    tenant: str | None
    rights: tuple[str, ...]


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a client learns when it opens."""

    format: int
    capabilities: Capabilities
    body_max: int
    wait_s: float
    caller: KnownCaller | None = None
    """None: there was no token, or it does not hold."""


class NewJobs(msgspec.Struct, frozen=True):
    jobs: list[NewJob]
    whole: bool = False
    """Create all of them, or none."""


class Limit(msgspec.Struct, frozen=True):
    limit: int


class Pruning(msgspec.Struct, frozen=True):
    limit: int
    events_keep_us: Micros


class Counting(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str | None
    by: ScopeKind = ScopeKind.QUEUE
    part: str | None = None
    after: tuple[str, str] | None = None
    limit: int = PAGE_MAX


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str | None
    after: int
    limit: int
    job_id: str | None = None


class Refs(msgspec.Struct, frozen=True):
    refs: list[Ref]
    by: By | None = None


class Signals(msgspec.Struct, frozen=True):
    signals: list[Signal]
    by: By | None = None


class Under(msgspec.Struct, frozen=True):
    """A page of names: of a prefix, on from a name."""

    under: str
    after: str = ""
    limit: int = PAGE_MAX


class Puts(msgspec.Struct, frozen=True):
    puts: list[Put]
    listed: Under | None = None
    """What to list afterwards; None answers the puts."""
    by: By | None = None


class Takes(msgspec.Struct, frozen=True):
    takes: list[Take]
    listed: Under | None = None


class Sleep(msgspec.Struct, frozen=True):
    watch: Watch
    timeout_s: float


class ChangedPairs(msgspec.Struct, frozen=True):
    """`Changed`, whose mapping has keys that msgpack has not."""

    done: list[tuple[Ref, str]]
    cursor: int | None

    @classmethod
    def of(cls, changed: Changed) -> ChangedPairs:
        return cls(list(changed.done.items()), changed.cursor)

    def changed(self) -> Changed:
        return Changed(dict(self.done), self.cursor)


class FoundPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """`Page`, whose journals have keys that msgpack has not."""

    jobs: Sequence[JobRecord]
    cursor: int | None
    journals: list[tuple[Ref, Journal]] = []

    @classmethod
    def of(cls, page: Page) -> FoundPage:
        return cls(page.jobs, page.cursor, list(page.journals.items()))

    def page(self) -> Page:
        return Page(self.jobs, self.cursor, dict(self.journals))


# -- verbs -----------------------------------------------------------------------------------------


class Verb(Generic[T]):
    """One route: what it is asked, what it tells, and whether it may be asked twice."""

    def __init__(self, name: str, asks: Any, tells: Any, *, repeats: bool = True) -> None:
        self.name = name
        self.path = f"{PATH}/{name}"
        self.repeats = repeats
        """Sent again when its answer may have been lost."""
        self.asked = msgspec.msgpack.Decoder(asks, dec_hook=_in)
        self.told: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(tells, dec_hook=_in)


ENQUEUE: Verb[list[Enqueued]] = Verb("enqueue", NewJobs, list[Enqueued])
CLAIM: Verb[list[Lease]] = Verb("claim", Claim, list[Lease])
"""Stores know a nonce again: the second claim gives what still holds of the first one's leases."""
EXTEND: Verb[list[Extended]] = Verb("extend", list[Extension], list[Extended])
ACK: Verb[list[Acked]] = Verb("ack", list[Transition], list[Acked])
REMEMBERED: Verb[FoundPage] = Verb("remembered", Ref, FoundPage)
"""A running job with its journal, for a worker that has no right to read."""
LAPSE: Verb[list[Acked]] = Verb("lapse", list[Transition], list[Acked])
"""The ack of upkeep: without a token, or because a deadline passed."""
SIGNAL: Verb[list[Signaled]] = Verb("signal", Signals, list[Signaled])
"""Repeated, it may say that an earlier signal counts, which is this one."""
CANCEL: Verb[list[Canceled]] = Verb("cancel", Refs, list[Canceled])
CHANGE: Verb[ChangedPairs] = Verb("change", Change, ChangedPairs, repeats=False)
"""Harmless to repeat, but the second answer would not name what the first has done."""
EXPIRED: Verb[list[Lapsed]] = Verb("expired", Limit, list[Lapsed])
PRUNE: Verb[Pruned] = Verb("prune", Pruning, Pruned)
FIND: Verb[FoundPage] = Verb("find", Find, FoundPage)
COUNT: Verb[list[Tally]] = Verb("count", Counting, list[Tally])
RECOUNT: Verb[list[Tally]] = Verb("recount", Counting, list[Tally])
EXPLAIN: Verb[Explanation] = Verb("explain", Ref, Explanation)
EVENTS: Verb[EventPage] = Verb("events", Reading, EventPage)
SETTINGS: Verb[list[Setting]] = Verb("settings", Under, list[Setting])
PUT: Verb[list[Setting]] = Verb("put", Puts, list[Setting], repeats=False)
"""Compare-and-set: repeated, it would say that somebody else was faster."""
HOLDS: Verb[list[Hold]] = Verb("holds", Under, list[Hold])
HOLD: Verb[list[Hold]] = Verb("hold", Takes, list[Hold])
SHADOW: Verb[Shadow] = Verb("shadow", ShadowRead, Shadow)
STEP: Verb[Shadow] = Verb("step", ShadowStep, Shadow)
"""Known by its stamp when it is repeated."""
WAIT: Verb[None] = Verb("wait", Sleep, None, repeats=False)
"""For work. A wait whose answer is lost was one that woke in vain."""
WATCH: Verb[None] = Verb("watch", Sleep, None, repeats=False)
"""For the end of a job, or for news."""
