"""Every key of the FoundationDB store, which verb touches it, and where transactions can conflict.

All keys begin with the prefix of the installation's directory (`directory.py`), or with the one
that its URL names, so that several installations share a cluster. Then follow a byte, ALL for what
spans tenants or OWN for what belongs to one tenant (whose name follows, so that a tenant is one
range), and the number of the subspace. Texts are UTF-8 and end with a zero byte; instants and ranks
are 8 bytes that sort like the number.

A job's **seq** is the read version of its enqueue, counted from the installation's first, times
16, or one more than the highest there is, plus a small random number (`Step.find_seqs`). It stays
below 2^53 for 17 years, and is higher than that of every job whose enqueue had returned. The
highest is read by snapshot; two enqueues conflict only if they chose the same numbers.

An event's **cursor** is 1, 2, 3 and so on, in the order of commits. A transaction cannot know it,
and must not read a counter that all others write. So events are written to INBOX under
versionstamps (8 bytes of version and 2 of batch order, which the cluster fills in, then 2 of the
place), which fix their order. Readers count on from HEAD; writers move them to EVENTS
(`events.py`).

    ALL  META     -> format, first version    read by every step: another format stops it
         QUEUES   queue tenant -> since     lines that may have ready jobs: claims that name queues
         LINES    tenant queue -> since     the same lines: claims that name tenants, or nothing
         TENANTS  tenant -> since           tenants that have such lines: claims that name nothing
         RESTING  tenant queue -> ''        lines that claims often found without room: no pointers
         CLAIMERS tenant queue name -> stamp    stores that claimed from a line lately
         DUE      run_at tenant id          scheduled, retrying
         HELD     deadline tenant id        processing, attempts left: by `clock.py`
         SPENT    deadline tenant id        processing, none left
         TTL LATE expires_at tenant id      waiting with a time to live; past it, so in no line
         DONE     keep_until tenant id      ended
         KEY_ENDS until tenant queue type key    timed idempotency keys
         ALL_JOBS seq -> tenant id          every job
         INBOX    stamp -> [tenant, events] a batch of events, not numbered yet
         EVENTS   cursor -> [tenant, events]    a batch; the key is the cursor of its last event
         HEAD     -> the last cursor        FLOOR -> the last pruned one
         COUNTS   kind tenant part what -> int64, added to, never set: a state, the bytes that
                                            wait, one of the parts of a limit (`limits.py`), or
                                            of a tenant its slots, queues, groups (`limits_caps.py`)
         LIMIT_LOCKS kind tenant part what -> ''    written by steps that take a place under a limit
         BUCKETS  kind tenant part -> full_at, change    the change of TIER_RATES that it knows of
         REOPEN   at kind tenant part       when time alone may make room in a scope; 0 alone: there
                                            are jobs in RELEASING
         OPENS    kind tenant part -> at    the same, by scope
         REGROUPS tenant group -> place     groups (or all of a tenant) whose settings have changed
         SCOPE_STAMPS tenant -> stamp       of the last change to settings of its scopes; of '' also
                                            to tiers
         TIER_USERS  tier -> int64          tenants in it
         TIER_RESTS  tier tenant -> ''      tenants of a tier ('': of none) of which lines rest, or
                                            groups wait, since there are tiers; maybe not any more
         TIER_LOOKS  tier -> kinds, place   tiers whose values have changed: claims look again at
                                            what rests, from this place on (`limits_tiers.py`)
         TIER_LEFT   tier tenant -> place   tenants of which they have not seen all yet
         TIER_RATES  0 tier | 1 tenant -> change, at    when a tier changed rates, or a tenant tiers
         PLATFORM kind tenant part -> ''    scopes of the platform that have settings, or had some
                                            while jobs waited; 'u': its running jobs are not counted
         ASIDE    kind tenant part -> ''    those at which something waits (`limits_platform.py`)
         ASIDE_LINES kind tenant part 0 queue tenant -> since    the lines that wait there, or
                                            whose jobs do; and by 1 tenant queue
         SETTINGS name -> value, version    HOLDS name -> owner, until, note    HOLD_ENDS until name
         WAKEUPS  topic -> int64            watched by sleepers of other processes
         MARKS    version nonce -> try      which calls have been done: see below
         CLAIMED  nonce -> until, seqs      claims that gave leases, for a repeat
         RELEASING tenant seq -> parent     ended jobs that have edges to follow yet (`joins.py`)
    OWN  ROWS     id -> row                 all of a job but a large payload
         BODIES   id part -> bytes          a payload above INLINE_MAX, in parts of PART_MAX
         KEYS     queue type key -> id, until    idempotency
         READY    queue -priority seq -> id, group, expires_at     the line
         ASIDE_JOBS queue type -priority seq -> id, group, expires_at    of a line, where its type
                                            had no room over all tenants: not in READY
         GROUP_WAITING group queue rank seq -> id    enqueued, but its group has no room yet
         GROUP_READY   group queue -priority seq -> id    of a limited group, in the line
         GROUP_ORDER   group seq -> id      not ended: the head of an ordered group
         GROUP_JOBS    group seq -> id      KEY_JOBS key seq -> id    for pages by group or key
         AGES     queue run_at seq          enqueued: how long the oldest waits
         JOBS     seq -> id                 its jobs, for pages
         DEAD     seq -> id                 its failed ones: the dead letters among millions
         LOG      cursor -> ''              its batches in EVENTS
         JOURNAL  id kind name -> at, value     what a job remembers; of a join, how far it is, and
                                            its parts (`journal.py`)
         EDGES    seq place -> edges        of jobs that have many, EDGES_PART in each
         SOURCES  source -> stamp, rows, size    SOURCE_STATES source -> state
         SHADOW   source id -> row          the objects of a source, as they were last seen

**A step** (`step.py`) is one transaction of one verb. It reads from the database, keeps its writes
in memory, where its later reads see them, and hands them over at the end: nothing that waits for
its versionstamp is ever read back (error 1036). The index entries of a job are computed from its
row (`rows.entries`), before and after, and the difference is written. A step costs as much as it
waits for the cluster, so it requests all that it will need together (`overlay.py`): an enqueue
waits twice (version and reads, commit), an ack twice or three times, a claim four times, and once
or twice more where limits are set.

**What conflicts.** Rows are read with conflict ranges (not by snapshot): of two changes of one job
one is repeated and sees the other. Nothing else of the busy paths conflicts:
- enqueue reads the ids and keys that it was given, and SCOPE_STAMPS of its tenants. An id that was
  made for the very call is not read. Counters are added to, pointers and wake-ups written blindly.
- claim reads lines, pointers and counters by snapshot, and the rows that it takes with conflict
  ranges. The claimers of one line share its jobs (`claim_sharing.py`). One claimer alone takes all
  in order.
- ack, extend and cancel read their rows.
- Lines that claims found without room many times lose their pointers until there may be room again
  (`limits_groups.rest_lines`). The step that hides a line reads the counters with conflict ranges,
  and a step that frees a place reads RESTING so, so that neither overlooks the other.
- Pointers of empty lines are deleted by a transaction of their own, which reads the line with a
  conflict range: an enqueue between wins, and the pointer stays.
- find, count, explain, expired, events and wait write nothing.

P2: a lease is written by a transaction that read the row with a conflict range, so of two claims
one fails.
P9: READY is in order; a claim reads on until it has enough, so nothing hides anything.
P10: a claim first moves what is due or lapsed (REPAIR_MAX at a time) in a step of its own.
P13: a step that takes a place of a limited scope reads its counters by snapshot, and reads and
writes its key in LIMIT_LOCKS: of two such steps one fails. Tenants and queues have a key for each
part of their limit, and a claimer has parts of its own (`limits.py`). A step that frees a place
does not write the key: a claim that read too little room has only been careful. Slots write all
keys. Groups have one key, and grants write it, so that none is lost between two jobs that end at
once: many that claim and ack jobs of one limited group at once conflict (measured: with 16 of them
half of the tries fail). Buckets are read with conflict ranges.
Scopes of the platform have one key each, so claims that take places under one of them run one after
the other. Their running jobs are counted only while they have settings: each step that starts or
ends a job reads SCOPE_STAMPS of the tenant '', which is the platform, and a step of its own counts
the jobs that run already, before the first claim under the new limit (`limits_platform.py`).
The values of tiers are settings of the platform: they are read again when its stamp has changed, so
a change of a tier makes every step conflict that goes by its old values. A step that puts a tenant
into a tier adds to TIER_USERS, which the one that deletes the tier reads with a conflict range.
P14: events are numbered in the order of their commits, all of a version at once: none comes late.
P15: a claim reads CLAIMED of its nonce with a conflict range, and writes it with its leases: of two
claims of one nonce one fails, and finds the leases of the other.
P16: the row says how much its journal uses, and whether it has one. So each step that writes an
entry reads the row with a conflict range and writes it: a signal, a heartbeat and an ack of one job
are one after the other.
P17: many jobs that end at once, and that one job awaits, must not wait for each other. A wide join
is kept in up to JOIN_PARTS parts, each with its share of the number. An end takes one from a part
chosen at random, which it reads with a conflict range. The step that empties a part reads another
one so, a witness that the join is not complete; the one that empties the last has completed it. The
awaited job's row is read with a conflict range only by a step that changes it. A step that parks a
job reads the join with one: so it sees its completion, or the step that completes it sees that the
job is parked.
Ended jobs with edges left are in RELEASING, and a key in REOPEN says so, which claims and sleepers
read anyway: idle ones read nothing more.
P19: claims go by tenant first (`fairness.py`, `fairness_lines.py`). A tenant's queues and groups
are counted by the step that brings the first job, which reads the counters of the new one with a
conflict range, and by the sweep that deletes them.

**A commit whose result is unknown** (1021, or no answer in time). Each writing step reads and
writes a mark of its own, the same in each try. Two tries of one call conflict, so only one is ever
done, however late the first arrives; the next try finds the mark and returns the answer of the try
that was done. The mark is deleted by the next step of the process, or by prune. The caller's own
transaction (`using`) has none: there the ids find the jobs of the first try.

Limits: keys 10,000 bytes, values 100,000, transactions 10,000,000 and 5 s. Rows hold at most a
result of 64 KiB and small texts; batches are cut by bytes (`STEP_BYTES_MAX`); what reads many rows
does so in several transactions, and prune in bounded steps. New settings of a group are followed by
as many steps as regroup its jobs (`limits_groups.py`). Only `recount` has to read all jobs of a
tenant at one version: it reads for up to 3 s (about 500,000 jobs over the engine for tests; not
measured over a cluster yet), and of a tenant with more it counts the held ones.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from holdfast.core.scope import Scope, ScopeKind

FORMAT = 4
"""The format of keys and values; a store refuses an installation of another one."""

INLINE_MAX = 1024
"""Bytes of a payload that is kept in the row of its job."""
PART_MAX = 90_000
"""Bytes of one part of a larger payload: the engine takes 100,000."""
STEP_BYTES_MAX = 2_000_000
"""Bytes that one transaction writes at most, about: the engine takes 10,000,000."""
TRANSACTION_BYTES_MAX = 9_400_000
"""The same for a call that creates all of its jobs or none, which must be one transaction."""
EDGES_PART = 50
"""Edges that are stored under one key."""
EVENT_BYTES_MAX = 60_000
"""Bytes of one batch of events."""

ALL = b"\x01"
OWN = b"\x02"


class Space(IntEnum):
    """The numbers of the subspaces. Part of the format: never reused."""

    META = 0
    QUEUES = 1
    LINES = 2
    CLAIMERS = 3
    DUE = 4
    HELD = 5
    SPENT = 6
    TTL = 7
    LATE = 8
    DONE = 9
    KEY_ENDS = 10
    ALL_JOBS = 11
    EVENTS = 12
    FLOOR = 13
    COUNTS = 14
    LIMIT_LOCKS = 15
    BUCKETS = 16
    REOPEN = 17
    OPENS = 18
    SCOPE_STAMPS = 19
    SETTINGS = 20
    HOLDS = 21
    HOLD_ENDS = 22
    WAKEUPS = 23
    MARKS = 24
    INBOX = 25
    HEAD = 26
    RESTING = 27
    REGROUPS = 28
    TENANTS = 29
    CLAIMED = 30
    PLATFORM = 31
    ASIDE = 32
    ASIDE_LINES = 33
    TIER_USERS = 34
    TIER_RESTS = 35
    TIER_LOOKS = 36
    TIER_RATES = 37
    TIER_LEFT = 38
    RELEASING = 39

    ROWS = 64
    BODIES = 65
    KEYS = 66
    READY = 67
    GROUP_WAITING = 68
    GROUP_READY = 69
    GROUP_ORDER = 70
    AGES = 71
    JOBS = 72
    LOG = 73
    DEAD = 74
    GROUP_JOBS = 75
    KEY_JOBS = 76
    ASIDE_JOBS = 77
    JOURNAL = 78
    EDGES = 79
    SOURCES = 80
    SOURCE_STATES = 81
    SHADOW = 82


BY_QUEUE, BY_TENANT = b"\0", b"\1"
"""The two orders of ASIDE_LINES."""
STAMP = 10
"""Bytes of a versionstamp."""
SEQ = 8
"""Bytes of a sequence or a cursor."""
SEQS_PER_VERSION = 16
PENDING = b"\xff" * STAMP
"""Stands for the versionstamp of the transaction itself: it sorts after all others, as that."""

_OFFSET = 1 << 63
_SIZE = 8
KINDS = {ScopeKind.TENANT: 0, ScopeKind.QUEUE: 1, ScopeKind.GROUP: 2}
PLATFORM_KINDS = {ScopeKind.PLATFORM: 3, ScopeKind.TYPE: 4, ScopeKind.QUEUE: 5}
"""Numbers of their own, so that what is read of all tenants finds none of the platform's."""
KIND_OF = {number: kind for kinds in (KINDS, PLATFORM_KINDS) for kind, number in kinds.items()}


@lru_cache(8192)
def text(value: str) -> bytes:
    """A name in a key. Zero bytes, which no name of ours holds, are escaped."""
    return value.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0"


def whole(value: int) -> bytes:
    """A number in a key; one out of range is clipped."""
    return min(max(value + _OFFSET, 0), (1 << 64) - 1).to_bytes(_SIZE, "big")


def number(key: bytes) -> int:
    return int.from_bytes(key[:_SIZE], "big") - _OFFSET


def texts(key: bytes, count: int) -> list[str]:
    """The names at the beginning of a key."""
    found, rest = [], key
    for _ in range(count):
        end = rest.index(b"\0")
        while rest[end + 1 : end + 2] == b"\xff":
            end = rest.index(b"\0", end + 2)
        found.append(rest[:end].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass"))
        rest = rest[end + 1 :]
    return found


def seq_bytes(seq: int) -> bytes:
    return min(max(seq, 0), (1 << 8 * SEQ) - 1).to_bytes(SEQ, "big")


def seq_number(key: bytes) -> int:
    return int.from_bytes(key, "big")


def after(prefix: bytes) -> bytes:
    """The end of the range of all keys with this prefix."""
    return prefix + b"\xff" * 16


class Keys:
    """The keys of one installation."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.owners = prefix + OWN
        """The prefix of all that belongs to one tenant."""
        self._all = {space: prefix + ALL + bytes([space]) for space in Space}

    def all(self, space: Space, *parts: bytes) -> bytes:
        return self._all[space] + b"".join(parts)

    def own(self, tenant: str, space: Space, *parts: bytes) -> bytes:
        return self.owners + text(tenant) + bytes([space]) + b"".join(parts)

    def row(self, tenant: str, id: str) -> bytes:
        return self.own(tenant, Space.ROWS, text(id))

    def body(self, tenant: str, id: str) -> bytes:
        return self.own(tenant, Space.BODIES, text(id))

    def journal(self, tenant: str, id: str) -> bytes:
        return self.own(tenant, Space.JOURNAL, text(id))

    def edges(self, tenant: str, seq: int) -> bytes:
        return self.own(tenant, Space.EDGES, seq_bytes(seq))

    def named(self, space: Space, at: int, tenant: str, id: str) -> bytes:
        """An entry of an index by instants."""
        return self.all(space, whole(at), text(tenant), text(id))

    def instant_of(self, space: Space, key: bytes) -> int:
        return number(key[len(self._all[space]) :])

    def name_of(self, space: Space, key: bytes) -> tuple[str, str]:
        """The tenant and the id in an entry of an index by instants."""
        tenant, id = texts(key[len(self._all[space]) + _SIZE :], 2)
        return tenant, id

    def ready(self, tenant: str, queue: str) -> bytes:
        return self.own(tenant, Space.READY, text(queue))

    def line(self, tenant: str, queue: str) -> tuple[bytes, bytes]:
        """Both pointers of a line."""
        named, listed = text(tenant), text(queue)
        return self.all(Space.QUEUES, listed, named), self.all(Space.LINES, named, listed)

    def pointers(self, tenant: str, queue: str) -> tuple[bytes, bytes, bytes]:
        """The keys that say that a line has ready jobs: both of the line, and its tenant's."""
        return *self.line(tenant, queue), self.all(Space.TENANTS, text(tenant))

    def scope(self, space: Space, scope: Scope) -> bytes:
        kinds = PLATFORM_KINDS if scope.of_platform else KINDS
        kind = bytes([kinds[scope.kind]])
        return self.all(space, kind, text(scope.tenant), text(scope.part))

    def scope_of(self, space: Space, key: bytes, skip: int = 0) -> tuple[Scope, bytes]:
        """The scope in a key, and what follows it."""
        rest = key[len(self._all[space]) + skip :]
        tenant, part = texts(rest[1:], 2)
        length = 1 + len(text(tenant)) + len(text(part))
        return Scope(tenant, KIND_OF[rest[0]], part), rest[length:]

    def aside(self, scope: Scope, tenant: str, queue: str) -> tuple[bytes, bytes]:
        """Both pointers of a line at which something waits for room in a scope of the platform."""
        prefix, named, listed = self.scope(Space.ASIDE_LINES, scope), text(tenant), text(queue)
        return prefix + BY_QUEUE + listed + named, prefix + BY_TENANT + named + listed

    def tier_rests(self, tier: str, *tenants: str) -> bytes:
        """The entry of a tenant of which something may rest in its tier, or the prefix of all."""
        return self.all(Space.TIER_RESTS, text(tier), *map(text, tenants))

    def aside_jobs(self, tenant: str, queue: str, type: str) -> bytes:
        return self.own(tenant, Space.ASIDE_JOBS, text(queue), text(type))
