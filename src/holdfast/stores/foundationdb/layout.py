"""Every key of the FoundationDB store, which verb touches it, and where transactions can conflict.

All keys begin with the prefix of the installation's directory (`directory.py`), or with the one
that its URL names, so that several share a cluster. Then a byte, ALL for what spans tenants or OWN
for what is one tenant's (its name follows, so a tenant is one range), and the number of the
subspace. Texts are UTF-8 and end with a zero byte, instants and ranks are 8 bytes that sort like
the number.

A job's **seq** is the read version of its enqueue, counted from the installation's first, times
16, or one more than the highest there is, plus a little chance (`Step.number`): below 2^53 for 17
years, and higher than that of every job whose enqueue had returned. The highest is read by
snapshot; two enqueues conflict only if chance gave them the same numbers.

An event's **cursor** is 1, 2, 3 and so on, in the order of commits. A transaction cannot know it,
and must not read a counter that all others write. So facts are written to INBOX under versionstamps
(8 bytes of version, 2 of batch order, which the cluster fills in, 2 of the place), and numbered
later, by who reads or prunes (`log.number`): what a step sees at its version is complete up to it.

    ALL  META     -> format, first version    read by every step: another version of it stops
         QUEUES   queue tenant -> since     lines that may have ready jobs: claims that name queues
         LINES    tenant queue -> since     the same lines: claims that name tenants, or nothing
         TENANTS  tenant -> since           tenants that have such lines: claims that name nothing
         RESTING  tenant queue -> ''        lines without room that claims met often: no pointers
         CLAIMERS tenant queue who -> stamp who claimed from a line lately, by the version
         DUE      run_at tenant id          scheduled, retrying
         HELD     deadline tenant id        processing, attempts left: by `clock.py`
         SPENT    deadline tenant id        processing, none left
         TTL LATE expires_at tenant id      waiting with a time to live; past it, so in no line
         DONE     keep_until tenant id      ended
         KEY_ENDS until tenant queue type key    timed idempotency keys
         PAGES    seq -> tenant id          every job
         INBOX    stamp -> [tenant, facts]  a run of facts, not numbered yet
         EVENTS   cursor -> [tenant, facts] a run of facts; the key is the last one's cursor
         HEAD     -> the last cursor        FLOOR -> the last pruned one
         COUNTS   kind tenant part what -> int64, added to, never set: a state, the bytes that
                                            wait, one of the parts of a limit (`places.py`), or
                                            of a tenant its slots, queues, groups (`shares.py`)
         GATES    kind tenant part what -> ''    written by who takes a place of a limited scope
         BUCKETS  kind tenant part -> full_at
         REOPEN   at kind tenant part       when time alone may let a group go on
         OPENS    kind tenant part -> at    the same, by group
         SORTS    tenant group -> place     groups (or all of a tenant) to be sorted: `sorting.py`
         RULED    tenant -> stamp           of the last change to settings of its scopes
         SETTINGS name -> version, value    HOLDS name -> owner, until, note    HOLD_ENDS until name
         BELLS    name -> int64             watched by sleepers of other processes
         MARKS    version nonce -> ''       which calls have been done: see below
         CLAIMED  nonce -> until, seqs      claims that gave leases, for a repeat (`repeats.py`)
    OWN  ROWS     id -> row                 all of a job but a large payload
         BODIES   id part -> bytes          a payload above INLINE_MAX, in parts of PART_MAX
         NAMES    queue type key -> id, until    idempotency
         READY    queue -priority seq -> id, group, expires_at     the line
         GATED    group queue rank seq -> id     enqueued, but its group has no place for it yet
         GRANTED  group queue -priority seq -> id    of a limited group, in the line
         ORDER    group seq -> id           not ended: the head of an ordered group
         AGES     queue run_at seq          enqueued: how long the oldest waits
         OF       seq -> id                 its jobs: pages
         DEAD     seq -> id                 its failed ones: the dead letters among millions
         GROUPED  group seq -> id           KEYED key seq -> id    of a group, with a key: pages
         LOG      cursor -> ''              its entries of EVENTS

**A step** (`step.py`) is one transaction of one verb. It reads from the database, keeps its writes
in memory where its later reads see them, and hands them over at the end: nothing that waits for its
versionstamp is ever read back (error 1036). Where a job stands is computed from its row
(`rows.entries`), before and after: the difference is written. What it costs is how often it has to
wait for the cluster, so it asks for all that it will need together (`overlay.py`): an enqueue
waits twice (version and reads, commit), an ack twice or three times, a claim four times, and once
or twice more where limits are set.

**What conflicts.** Rows are read in earnest: two acts on one job conflict, one of them is repeated
and sees the other. Nothing else of the busy paths does:
- enqueue reads the ids and keys it was given, and RULED of its tenants. An id made for the very
  call is not read. Counters are added to, pointers and bells written blindly.
- claim reads lines, pointers and counters by snapshot, and in earnest the rows that it takes.
  Who claims from a line leaves its name there; of n claimers each takes the jobs that fall to it
  (`turns.py`), and of others' only what is left. One claimer takes all in order.
- ack, extend and cancel read their rows.
- Lines that claims found without room many times lose their pointers until room may be there again
  (`gates.close`): who closes reads the counts in earnest, who frees a place reads RESTING in
  earnest, so that none overlooks the other.
- Pointers of empty lines are deleted by a transaction of their own, under a conflicting read of
  the line: an enqueue between wins, and the pointer stays.

P2: a lease is written by a transaction that read the row in earnest, so of two claims one fails.
P9: READY is in order; a claim reads on until it has enough, so nothing hides anything.
P10: a claim first moves what is due or lapsed (REPAIR_MAX at a time) in a step of its own.
P13: who takes a place of a limited scope reads its counts by snapshot, and reads and writes its
GATES key: of two that take one fails. Tenants and queues have one for each part of their limit, and
a claimer has parts of its own (`places.py`). What frees a place does not write it: a claim that saw
too little room has only been careful. Slots write all of them. Groups have one key, and grants
write it, so that none is lost between two that end at once: many who claim and ack jobs of one
limited group at once are in each other's way (measured: 16 of them, half of the tries in vain).
Buckets are read in earnest.
P15: a claim reads CLAIMED of its nonce with a conflict, and writes it with its leases: of two
claims of one nonce one fails, and finds the other's.
P19: claims go by tenant first (`lines.py`, `turns.py`). A tenant's queues and groups are counted
by who brings the first job, which reads the counters of the new one with a conflict, and by the
sweep that clears them.
P14: facts are numbered in the order of their commits, all of a version at once: none comes in late.

**A commit whose result is unknown** (1021, or no answer in time). Each writing step reads and
writes a mark of its own, the same in each try. Two tries of one call conflict, so only one is ever
done, however late the first arrives; the next try finds the mark and gives that one's answer. The
mark is cleared by the next step of the process, or by prune. The caller's own transaction
(`using`) has none: there the ids find the first try.

Limits: keys 10,000 bytes, values 100,000, transactions 10,000,000 and 5 s. Rows hold at most a
result of 64 KiB and small texts; batches are cut by bytes (`STEP_BYTES_MAX`); what walks over many
rows does so in several transactions, and prune in bounded steps. New settings of a group are
followed by as many steps as sort its jobs (`sorting.py`). Only `recount` has to see all jobs of a
tenant at one version: it reads for up to 3 s (over the engine for tests that is about 500,000
jobs; over a cluster it was not measured yet), and of a tenant with more it counts the held ones.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from holdfast.scope import Scope, ScopeKind

FORMAT = 2
"""Of the keys and their values; a store of another one is not touched."""

INLINE_MAX = 1024
"""Bytes of a payload that is kept in the row of its job."""
PART_MAX = 90_000
"""Bytes of one part of a larger one: the engine takes 100,000."""
STEP_BYTES_MAX = 2_000_000
"""Bytes that one transaction writes at most, about: the engine takes 10,000,000."""
EVENT_BYTES_MAX = 60_000
"""Bytes of one run of facts."""

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
    PAGES = 11
    EVENTS = 12
    FLOOR = 13
    COUNTS = 14
    GATES = 15
    BUCKETS = 16
    REOPEN = 17
    OPENS = 18
    RULED = 19
    SETTINGS = 20
    HOLDS = 21
    HOLD_ENDS = 22
    BELLS = 23
    MARKS = 24
    INBOX = 25
    HEAD = 26
    RESTING = 27
    SORTS = 28
    TENANTS = 29
    CLAIMED = 30

    ROWS = 64
    BODIES = 65
    NAMES = 66
    READY = 67
    GATED = 68
    GRANTED = 69
    ORDER = 70
    AGES = 71
    OF = 72
    LOG = 73
    DEAD = 74
    GROUPED = 75
    KEYED = 76


STAMP = 10
"""Bytes of a versionstamp."""
SEQ = 8
"""Bytes of a sequence or a cursor."""
SEQS_PER_VERSION = 16
PENDING = b"\xff" * STAMP
"""Stands for the versionstamp of this very transaction: after all others, as it will be."""

_OFFSET = 1 << 63
_SIZE = 8
KINDS = {ScopeKind.TENANT: 0, ScopeKind.QUEUE: 1, ScopeKind.GROUP: 2}
KIND_OF = {number: kind for kind, number in KINDS.items()}


@lru_cache(8192)
def text(value: str) -> bytes:
    """A name in a key. Zero bytes, which no name of ours holds, cannot break out of it."""
    return value.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0"


def whole(value: int) -> bytes:
    """A number in a key; what is out of range sorts at the end of it."""
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
        """Of all that is one tenant's."""
        self._all = {space: prefix + ALL + bytes([space]) for space in Space}

    def all(self, space: Space, *parts: bytes) -> bytes:
        return self._all[space] + b"".join(parts)

    def own(self, tenant: str, space: Space, *parts: bytes) -> bytes:
        return self.owners + text(tenant) + bytes([space]) + b"".join(parts)

    def row(self, tenant: str, id: str) -> bytes:
        return self.own(tenant, Space.ROWS, text(id))

    def body(self, tenant: str, id: str) -> bytes:
        return self.own(tenant, Space.BODIES, text(id))

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
        """What says that a line has ready jobs, and its tenant with it."""
        return *self.line(tenant, queue), self.all(Space.TENANTS, text(tenant))

    def scope(self, space: Space, scope: Scope) -> bytes:
        kind = bytes([KINDS[scope.kind]])
        return self.all(space, kind, text(scope.tenant), text(scope.part))

    def scope_of(self, space: Space, key: bytes, skip: int = 0) -> tuple[Scope, bytes]:
        """The scope in a key, and what follows it."""
        rest = key[len(self._all[space]) + skip :]
        tenant, part = texts(rest[1:], 2)
        length = 1 + len(text(tenant)) + len(text(part))
        return Scope(tenant, KIND_OF[rest[0]], part), rest[length:]
