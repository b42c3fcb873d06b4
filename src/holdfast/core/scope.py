"""Limits, rates and pauses of scopes: stored data, pure rules.

A tenant has three kinds of scopes: itself, its queues and its groups. The platform has three as
well: the whole store, a queue over all tenants and a job type over all tenants; their tenant is
empty. All scopes of a job apply together.

The settings of a scope are one stored setting (`Scope.name`), changed by compare-and-set like every
setting. Stores read them inside the step that claims. A group's own settings override the defaults
that its queue has for groups, field by field.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from holdfast.core.bounds import (
    GROUP_MAX,
    NAME_MAX,
    QUEUE_MAX,
    QUEUED_CAP_MAX,
    REASON_MAX,
    RUNNING_CAP_MAX,
    TENANT_MAX,
    TYPE_MAX,
    WEIGHT_MAX,
)
from holdfast.core.check import check_name, check_whole
from holdfast.core.clock import Micros
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.rate import Rate

PREFIX = "scope/"
"""Prefix of the settings of scopes."""
SLOTS = "slot/"
"""Prefix of the holds that are slots."""


LINES_PER_CLAIM = 8
"""The least number of waiting lines that share one claim, if it is for that many jobs."""
LINE_JOBS = 4
"""Up to so many jobs half of a small turn is, so that the turn visits two lines."""


class ScopeKind(StrEnum):
    TENANT = "tenant"
    QUEUE = "queue"
    GROUP = "group"
    PLATFORM = "platform"
    """The whole store."""
    TYPE = "type"
    """A job type over all tenants."""


TENANT_KINDS = (ScopeKind.TENANT, ScopeKind.QUEUE, ScopeKind.GROUP)
"""The kinds of scopes that a tenant has."""


class Scope(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A tenant, a queue or a group of it, or a scope of the platform.

    Stores look up limits by it for each job, and the hash of an enum is a call of Python.
    """

    tenant: str
    """Empty for the scopes of the platform."""
    kind: ScopeKind = ScopeKind.TENANT
    part: str = ""
    """The name of the queue, the group or the type."""

    @property
    def of_platform(self) -> bool:
        """Whether it spans all tenants."""
        return not self.tenant

    @property
    def name(self) -> str:
        """The name of its settings. Lengths in it keep names with slashes distinct."""
        return f"{PREFIX}{self.kind.value}/{len(self.tenant)}:{self.tenant}/{self.part}"

    @property
    def words(self) -> str:
        """The scope as text: "tenant acme", "queue mail of the platform"."""
        if self.kind is ScopeKind.PLATFORM:
            return "the platform"
        over_all = " of the platform" if self.of_platform else ""
        return f"{self.kind.value} {self.part or self.tenant}{over_all}"

    def slot(self, id: str) -> str:
        """The name of the hold for one of its slots."""
        return f"{self.slots}{id}"

    @property
    def slots(self) -> str:
        """The prefix of the holds for its slots."""
        part = f"{len(self.part)}:{self.part}/"
        return f"{SLOTS}{self.kind.value}/{len(self.tenant)}:{self.tenant}/{part}"

    def checked(self) -> Scope:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
        of_platform = self.kind in (ScopeKind.PLATFORM, ScopeKind.TYPE)
        if of_platform and self.tenant:
            why = f"a {self.kind.value} has no tenant, got {self.tenant!r}"
            raise InvalidInput(field="scope", why=why)
        if not of_platform and not (self.of_platform and self.kind is ScopeKind.QUEUE):
            check_name("tenant", self.tenant, TENANT_MAX)
        if self.kind in _PART_MAX:
            check_name(self.kind.value, self.part, _PART_MAX[self.kind])
        elif self.part:
            why = f"a {self.kind.value} has no part, got {self.part!r}"
            raise InvalidInput(field="scope", why=why)
        return self


_PART_MAX = {
    ScopeKind.QUEUE: QUEUE_MAX,
    ScopeKind.GROUP: GROUP_MAX,
    ScopeKind.TYPE: TYPE_MAX,
}
PLATFORM = Scope("", ScopeKind.PLATFORM)
"""The whole store."""


def platform_scopes(queue: str, type: str) -> tuple[Scope, Scope, Scope]:
    """The scopes of the platform that a job is in, the widest first."""
    return PLATFORM, Scope("", ScopeKind.QUEUE, queue), Scope("", ScopeKind.TYPE, type)


_NAMED = re.compile(r"(tenant|queue|group|platform|type)/([0-9]+):")


def scope_of(name: str) -> Scope | None:
    """The scope whose settings have this name; None if it is another name."""
    found = _parse(name, PREFIX)
    if found is not None and found.name != name:
        raise _no_scope(name)
    return None if found is None else found.checked()


def slot_scope_of(name: str) -> Scope | None:
    """The scope of the slot with this name; None if the hold is not a slot."""
    found = _parse(name, SLOTS)
    if found is None:
        return None
    length, _, rest = found.part.partition(":")
    if not length.isdecimal():
        raise _no_scope(name)
    scope = msgspec.structs.replace(found, part=rest[: int(length)])
    if not name.startswith(scope.slots):
        raise _no_scope(name)
    if scope.of_platform:
        raise InvalidInput(field="slot", why="a scope of the platform has no slots")
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
    kinds = ", ".join(ScopeKind)
    return InvalidInput(field="scope", why=f"there is no scope {name!r}; the kinds are {kinds}")


def rounds(room: int, weights: list[int]) -> int:
    """How many times its weight a line may take in one turn of a claim, given the size of the claim
    and the number of waiting lines.

    The claim is shared evenly if all lines fit. If more lines wait than fit, one turn still takes
    an eighth of the claim: every turn costs writes, and a large claim can be fair with fewer than a
    hundred of them. A claim for a few jobs takes one at a time.
    """
    total = sum(weights)
    return max(1, room // total, room * len(weights) // (total * LINES_PER_CLAIM))


def line_share(room: int, lines: int) -> int:
    """How many jobs one of a tenant's waiting lines may give in one visit of the tenant's turn.

    A large turn is shared evenly. A small one visits two lines: a visit costs as much as a few
    jobs, and the lines that are left out come first in the next turn.
    """
    return max(rounds(room, [1] * lines), min(-(-room // 2), LINE_JOBS))


class Pause(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A pause: its reason and its author."""

    reason: str
    author: str
    platform: bool = False
    """Whether the platform paused the scope, so that the tenant cannot resume it."""


class Ceiling(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How high the platform lets a tenant set the limits of a scope. None: no ceiling.

    Stores do not use it; see `ceiling.py`.
    """

    max_running: int | None = None
    rate: Rate | None = None


class GroupRules(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The limits that a queue sets for its groups."""

    max_running: int | None = None
    rate: Rate | None = None
    ordered: bool | None = None


class ScopeSettings(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The settings of a scope. None: no limit."""

    max_running: int | None = None
    rate: Rate | None = None
    paused: Pause | None = None
    slots_count: bool = False
    """Count held slots against `max_running`."""
    weight: int | None = None
    """Tenants only: its share when tenants take turns. None: 1, or what its tier says."""
    max_queued: int | None = None
    """Tenants only: maximum jobs that have not ended."""
    max_bytes: int | None = None
    """Tenants only: maximum bytes of their payloads, edges, steps and signals."""
    ordered: bool | None = None
    """Groups only: run jobs one at a time, in the order of their first enqueue."""
    groups: GroupRules | None = None
    """Queues only: defaults for the groups of the queue."""
    ceiling: Ceiling | None = None
    """Set by the platform: the highest values of the other limits."""
    tier: str | None = None
    """Tenants only, set by the platform: the tier whose values count where these say nothing."""

    @property
    def share(self) -> int:
        """The weight, 1 if none is set."""
        return self.weight or 1

    def checked(self, scope: Scope) -> ScopeSettings:
        """Returns itself. Raises InvalidInput, which names the wrong field."""
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
        if self.tier is not None:
            check_name("tier", self.tier, NAME_MAX)
        for field in self.__struct_fields__:
            if field in _EVERYWHERE or getattr(self, field) == getattr(NO_SETTINGS, field):
                continue
            if scope.of_platform:
                raise InvalidInput(field=field, why="is not a setting of the platform's scopes")
            owner = _OWNERS.get(field, scope.kind)
            if scope.kind is not owner:
                raise InvalidInput(
                    field=field, why=f"is a setting of a {owner.value}, not a {scope.kind.value}"
                )
        return self


_CAPS = (
    ("max_running", RUNNING_CAP_MAX),
    ("weight", WEIGHT_MAX),
    ("max_queued", QUEUED_CAP_MAX),
    ("max_bytes", QUEUED_CAP_MAX),
)
_EVERYWHERE = ("max_running", "rate", "paused")
"""Settings of every kind of scope."""
_OWNERS = {
    "weight": ScopeKind.TENANT,
    "max_queued": ScopeKind.TENANT,
    "max_bytes": ScopeKind.TENANT,
    "ordered": ScopeKind.GROUP,
    "groups": ScopeKind.QUEUE,
    "tier": ScopeKind.TENANT,
}
NO_SETTINGS = ScopeSettings()
NO_RULES = GroupRules()

_UNKNOWN = re.compile("unknown field `(.*?)`")
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ScopeSettings)


def encode(settings: ScopeSettings) -> bytes:
    """The settings in their stored form."""
    return _encoder.encode(settings)


def decode(name: str, value: bytes) -> ScopeSettings:
    """Decodes stored settings and checks them. Raises InvalidInput, which names the wrong field."""
    scope = scope_of(name)
    if scope is None:
        raise InvalidInput(field="scope", why=f"{name!r} is not the name of a scope")
    try:
        settings = _decoder.decode(value)
    except msgspec.MsgspecError as error:
        unknown = _UNKNOWN.search(str(error))
        hint = did_you_mean(unknown[1], ScopeSettings.__struct_fields__) if unknown else ""
        raise InvalidInput(field=name, why=f"{error}{hint}") from None
    return settings.checked(scope)


class GroupSettings(msgspec.Struct, frozen=True):
    """The effective settings of a group: its own, and the defaults of its queue."""

    max_running: int | None
    rate: Rate | None
    ordered: bool
    paused: Pause | None
    slots_count: bool

    @property
    def open(self) -> bool:
        """Whether no limit, rate, order or pause applies."""
        return self.max_running is None and self.rate is None and self.paused is None


def group_settings(own: ScopeSettings, queue: ScopeSettings) -> GroupSettings:
    """Combines the group's own settings with its queue's defaults. An ordered group runs one at a
    time.
    """
    default = queue.groups or NO_RULES
    ordered = own.ordered if own.ordered is not None else bool(default.ordered)
    most = own.max_running if own.max_running is not None else default.max_running
    return GroupSettings(
        max_running=1 if ordered else most,
        rate=own.rate if own.rate is not None else default.rate,
        ordered=ordered,
        paused=own.paused,
        slots_count=own.slots_count,
    )


class BlockerKind(StrEnum):
    """What can keep a job from running now."""

    ENDED = "ended"
    RUNNING = "running"
    SCHEDULE = "schedule"
    EXPIRED = "expired"
    AWAITS = "awaits"
    """It waits for a signal, or for the end of other jobs."""
    PAUSE = "pause"
    LIMIT = "limit"
    RATE = "rate"
    ORDER = "order"
    TURN = "turn"
    """The job is ready, but others are ahead of it."""
    NO_WORKER = "no_worker"


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that blocks a job now, with a text that describes it."""

    kind: BlockerKind
    words: str
    scope: Scope | None = None
    until: Micros | None = None
    """When it ends by itself, if that is known."""
    holders: tuple[str, ...] = ()
    """The ids of the jobs or slots that block it."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job does not run now. Without blockers it can be claimed at once."""

    gates: tuple[Blocker, ...]
    ahead: int | None = None
    """Ready jobs ahead of it in its line, at most AHEAD_MAX; None if it is not ready."""
    tenants: int | None = None
    """Tenants that take turns in its queue, its own included."""
