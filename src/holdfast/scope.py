"""Limits, rates and pauses of the three scopes (tenant, queue, group): stored data, pure rules.

A scope's settings live in the store under one name (`Scope.name`) and are changed by
compare-and-set like every setting; stores read them inside the step that claims. A group's own
settings win over the defaults its queue holds for groups, field by field.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from holdfast.check import check_name, check_whole
from holdfast.clock import SECOND, Micros
from holdfast.errors import InvalidInput, did_you_mean
from holdfast.limits import (
    GROUP_MAX,
    QUEUE_MAX,
    QUEUED_CAP_MAX,
    REASON_MAX,
    RUNNING_CAP_MAX,
    TENANT_MAX,
    WEIGHT_MAX,
)

PREFIX = "scope/"
"""Names of scopes' settings."""
SLOTS = "slot/"
"""Names of slots that outsiders hold."""


LINES_PER_CLAIM = 8
"""How many waiting lines share a claim at least, if it is for that many jobs."""


class ScopeKind(StrEnum):
    TENANT = "tenant"
    QUEUE = "queue"
    GROUP = "group"


class Scope(msgspec.Struct, frozen=True, order=True):
    """A tenant, or a queue or a group inside it."""

    tenant: str
    kind: ScopeKind = ScopeKind.TENANT
    part: str = ""
    """The queue's or the group's name."""

    @property
    def name(self) -> str:
        """The name of its settings. Lengths keep names with slashes apart."""
        return f"{PREFIX}{self.kind.value}/{len(self.tenant)}:{self.tenant}/{self.part}"

    def slot(self, id: str) -> str:
        """The name under which an outsider holds one of its places."""
        return f"{self.slots}{id}"

    @property
    def slots(self) -> str:
        """What the names of all its slots start with."""
        part = f"{len(self.part)}:{self.part}/"
        return f"{SLOTS}{self.kind.value}/{len(self.tenant)}:{self.tenant}/{part}"

    def checked(self) -> Scope:
        check_name("tenant", self.tenant, TENANT_MAX)
        if self.kind is ScopeKind.TENANT and self.part:
            raise InvalidInput(field="scope", why=f"a tenant has no part, got {self.part!r}")
        if self.kind is ScopeKind.QUEUE:
            check_name("queue", self.part, QUEUE_MAX)
        elif self.kind is ScopeKind.GROUP:
            check_name("group", self.part, GROUP_MAX)
        return self


_NAMED = re.compile(r"(tenant|queue|group)/([0-9]+):")


def scope_of(name: str) -> Scope | None:
    """The scope whose settings have this name; None for other names."""
    found = _parse(name, PREFIX)
    if found is not None and found.name != name:
        raise _no_scope(name)
    return None if found is None else found.checked()


def slot_scope_of(name: str) -> Scope | None:
    """The scope in which a hold of this name is a slot; None for other holds."""
    found = _parse(name, SLOTS)
    if found is None:
        return None
    length, _, rest = found.part.partition(":")
    if not length.isdecimal():
        raise _no_scope(name)
    scope = msgspec.structs.replace(found, part=rest[: int(length)])
    if not name.startswith(scope.slots):
        raise _no_scope(name)
    if name == scope.slots:
        raise InvalidInput(field="slot", why="must not be empty")
    return scope.checked()


def _parse(name: str, prefix: str) -> Scope | None:
    if not name.startswith(prefix):
        return None
    head = _NAMED.match(name, len(prefix))
    if head is None:
        raise _no_scope(name)
    end = head.end() + int(head[2])
    return Scope(name[head.end() : end], ScopeKind(head[1]), name[end + 1 :])


def _no_scope(name: str) -> InvalidInput:
    return InvalidInput(field="scope", why=f"there is no scope {name!r}: tenant, queue or group")


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many may start in how long; `burst` of them at once."""

    count: int
    per_us: Micros
    burst: int

    @property
    def price_us(self) -> Micros:
        """How long a token takes to come, rounded up: never early."""
        return -(-self.per_us // self.count)

    @property
    def words(self) -> str:
        """`100/s`, with the burst if it is another number."""
        unit = next((unit for unit, per_us in _UNITS.items() if per_us == self.per_us), "?")
        burst = "" if self.burst == self.count else f" burst {self.burst}"
        return f"{self.count}/{unit}{burst}"

    def checked(self, field: str = "rate") -> Rate:
        """Itself, or InvalidInput naming what is out of bounds."""
        check_whole(field, self.count, 1, RUNNING_CAP_MAX)
        check_whole(f"{field}.burst", self.burst, 1, RUNNING_CAP_MAX)
        if self.per_us not in _UNITS.values():
            raise InvalidInput(field=field, why=f"is per {self.per_us} us, must be per s, m, h, d")
        return self


_RATE = re.compile(r"\s*([0-9]{1,18})\s*/\s*([a-z]+)\s*")
SHOWN_MAX = 50
"""Characters of a wrong value that an error repeats."""
_UNITS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 24 * 3600 * SECOND}


def rate(text: object, burst: int | None = None) -> Rate:
    """`100/s`, `60/m`, `1000/h`, `5/d`; the burst is the count unless given."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[2] not in _UNITS:
        why = f"is {repr(text)[:SHOWN_MAX]}, must be a number and a unit: 100/s, 60/m"
        raise InvalidInput(field="rate", why=why)
    count = check_whole("rate", int(found[1]), 1, RUNNING_CAP_MAX)
    whole = check_whole("burst", count if burst is None else burst, 1, RUNNING_CAP_MAX)
    return Rate(count, _UNITS[found[2]], whole)


class Bucket(msgspec.Struct, frozen=True):
    """A token bucket, as the instant at which it will be full again. No drift, no fractions."""

    full_at: Micros = 0

    def tokens(self, rate: Rate, now: Micros) -> int:
        """How many may start now."""
        missing = max(0, self.full_at - now)
        return rate.burst - -(-missing // rate.price_us)

    def take(self, rate: Rate, number: int, now: Micros) -> Bucket:
        """The bucket without so many tokens."""
        return Bucket(max(self.full_at, now) + number * rate.price_us)

    def bounded(self, rate: Rate, now: Micros) -> Bucket:
        """The bucket under a new rate: empty at most, so that a raised one counts from now."""
        return Bucket(min(self.full_at, now + rate.burst * rate.price_us))

    def next_at(self, rate: Rate, now: Micros) -> Micros:
        """When the next token is there; never early."""
        if self.tokens(rate, now) > 0:
            return now
        return self.full_at - (rate.burst - 1) * rate.price_us


def rounds(room: int, weights: list[int]) -> int:
    """How many times its weight a line may take in one visit, when a claim has room for so many
    jobs and these lines to choose from.

    As often as there is room for all. Where more lines wait than fit, a visit still takes an eighth
    of the room: every visit costs writes of its own, and a large claim need not pay a hundred of
    them to be fair. Claims for a few jobs go on one by one.
    """
    total = sum(weights)
    return max(1, room // total, room * len(weights) // (total * LINES_PER_CLAIM))


class Pause(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Why nothing of a scope is claimed, and who said so."""

    reason: str
    author: str
    platform: bool = False
    """The platform said so: the tenant cannot resume it."""


class Ceiling(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How high the platform lets a tenant set the limits of a scope. None is as high as it likes.

    Stores do not look at it: see `ceiling.py`.
    """

    max_running: int | None = None
    rate: Rate | None = None


class GroupRules(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a queue sets for its groups."""

    max_running: int | None = None
    rate: Rate | None = None
    ordered: bool | None = None


class ScopeSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What can be set for a scope. None is no limit."""

    max_running: int | None = None
    rate: Rate | None = None
    paused: Pause | None = None
    slots_count: bool = False
    """Slots held by outsiders take places under `max_running`."""
    weight: int = 1
    """Of a tenant: its part of a claim over many."""
    max_queued: int | None = None
    """Of a tenant: jobs that have not ended."""
    max_bytes: int | None = None
    """Of a tenant: their payloads."""
    ordered: bool | None = None
    """Of a group: one at a time, in the order of their first enqueue."""
    groups: GroupRules | None = None
    """Of a queue: what its groups have unless they say otherwise."""
    ceiling: Ceiling | None = None
    """Set by the platform: the other limits stay at or below it."""

    def checked(self, kind: ScopeKind) -> ScopeSettings:
        """Itself, or InvalidInput naming what is wrong or not of this kind of scope."""
        for field, most in _CAPS:
            value = getattr(self, field)
            if value is not None:
                check_whole(field, value, 1, most)
        if self.rate is not None:
            self.rate.checked()
        for part, rules in (("groups", self.groups), ("ceiling", self.ceiling)):
            if rules is not None and rules.max_running is not None:
                check_whole(f"{part}.max_running", rules.max_running, 1, RUNNING_CAP_MAX)
            if rules is not None and rules.rate is not None:
                rules.rate.checked(f"{part}.rate")
        if self.paused is not None:
            check_name("reason", self.paused.reason, REASON_MAX)
            check_name("author", self.paused.author, REASON_MAX)
        for field, owner in _OWNERS.items():
            if getattr(self, field) != getattr(NO_SETTINGS, field) and kind is not owner:
                raise InvalidInput(
                    field=field, why=f"is a setting of a {owner.value}, not a {kind.value}"
                )
        return self


_CAPS = (
    ("max_running", RUNNING_CAP_MAX),
    ("weight", WEIGHT_MAX),
    ("max_queued", QUEUED_CAP_MAX),
    ("max_bytes", QUEUED_CAP_MAX),
)
_OWNERS = {
    "weight": ScopeKind.TENANT,
    "max_queued": ScopeKind.TENANT,
    "max_bytes": ScopeKind.TENANT,
    "ordered": ScopeKind.GROUP,
    "groups": ScopeKind.QUEUE,
}
NO_SETTINGS = ScopeSettings()
NO_RULES = GroupRules()

_UNKNOWN = re.compile("unknown field `(.*?)`")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ScopeSettings)


def encode(settings: ScopeSettings) -> bytes:
    """As it is stored."""
    return _encoder.encode(settings)


def decode(name: str, value: bytes) -> ScopeSettings:
    """Stored settings, checked; InvalidInput names what is wrong."""
    scope = scope_of(name)
    if scope is None:
        raise InvalidInput(field="scope", why=f"{name!r} names no scope")
    try:
        settings = _decoder.decode(value)
    except msgspec.MsgspecError as error:
        unknown = _UNKNOWN.search(str(error))
        hint = did_you_mean(unknown[1], ScopeSettings.__struct_fields__) if unknown else ""
        raise InvalidInput(field=name, why=f"{error}{hint}") from None
    return settings.checked(scope.kind)


class GroupGate(msgspec.Struct, frozen=True):
    """What holds for a job of a group, from the group's own settings and its queue's defaults."""

    max_running: int | None
    rate: Rate | None
    ordered: bool
    paused: Pause | None
    slots_count: bool

    @property
    def open(self) -> bool:
        """Nothing gates it."""
        return self.max_running is None and self.rate is None and self.paused is None


def group_gate(own: ScopeSettings, queue: ScopeSettings) -> GroupGate:
    """The group's own word first, then its queue's. An ordered group runs one at a time."""
    default = queue.groups or NO_RULES
    ordered = own.ordered if own.ordered is not None else bool(default.ordered)
    most = own.max_running if own.max_running is not None else default.max_running
    return GroupGate(
        max_running=1 if ordered else most,
        rate=own.rate if own.rate is not None else default.rate,
        ordered=ordered,
        paused=own.paused,
        slots_count=own.slots_count,
    )


class GateKind(StrEnum):
    """What can keep a job from running now."""

    ENDED = "ended"
    RUNNING = "running"
    SCHEDULE = "schedule"
    EXPIRED = "expired"
    PAUSE = "pause"
    LIMIT = "limit"
    RATE = "rate"
    ORDER = "order"
    TURN = "turn"
    """Ready: others come first."""
    NO_WORKER = "no_worker"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that holds a job now, in words."""

    kind: GateKind
    words: str
    scope: Scope | None = None
    until: Micros | None = None
    """When it opens by itself, if that is known."""
    holders: tuple[str, ...] = ()
    """Who is in the way: ids of jobs, or of slots."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run now. No gates: it can be claimed at once."""

    gates: tuple[Gate, ...]
    ahead: int | None = None
    """Ready jobs of its line that come first, at most AHEAD_MAX; None when it is not ready."""
    tenants: int | None = None
    """Tenants that take turns with its own in its queue."""
