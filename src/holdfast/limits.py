"""How large may X be?

Every loop, page, batch, payload and buffer is bounded by a name of this file.
"""

from __future__ import annotations

from holdfast.errors import InvalidInput

# Names, in characters.
TENANT_MAX = 128
QUEUE_MAX = 128
TYPE_MAX = 128
ID_MAX = 128
KEY_MAX = 512
GROUP_MAX = 256
TAG_MAX = 64
TAGS_MAX = 16
WORKER_MAX = 128
NAME_MAX = 768
"""Settings and holds; a slot's name holds those of its tenant, its group and itself."""
REASON_MAX = 256
"""Why an operator did something, and who it was."""
NAME_BYTES_MAX = 2600
"""Of one name in UTF-8, and of an idempotency key with its tenant, queue and type: an index row of
PostgreSQL has room for 2,704.
"""
TOKEN_MAX = 256
"""Of a lease's token: the claim's nonce, a dot, and the sequence of the job."""
NONCE_MAX = 128

# Bodies, in bytes unless said.
PAYLOAD_MAX = 256 * 1024
RESULT_MAX = 64 * 1024
ERROR_CHARS_MAX = 8 * 1024
"""Longer error texts are cut, keeping head and tail; an error must never fail an ack."""
PROGRESS_CHARS_MAX = 1024
JSON_DEPTH_MAX = 128
"""Levels of a payload or result in JSON: what readers in other languages take at least."""
SETTING_MAX = 64 * 1024
NOTE_MAX = 2048
"""Of a hold: what a worker says of itself, what a slot is for."""

# Numbers of a job.
PRIORITY_MIN = -(2**31)
PRIORITY_MAX = 2**31
ATTEMPTS_MAX = 1000
DELAYS_MAX = 100
"""Entries of a retry policy that is a list of delays."""
DELAY_S_MAX = 100 * 366 * 24 * 3600.0
LEASE_S_MAX = 7 * 24 * 3600.0
HOLD_S_MAX = 31 * 24 * 3600.0
"""How long a name is held unless it is renewed."""
PRESENCE_S_MAX = 600.0
"""How long a worker counts as present unless it says so again."""
CLAIM_REPEAT_S = 60.0
"""For how long a claim is known by its nonce, so that repeating it leases nothing more."""
INSTANT_MAX = 7_258_118_400_000_000
"""Microseconds: the beginning of the year 2200. Every store counts exactly up to 2**53."""
VERSION_MAX = 2**31 - 1
"""Of a job type's schema."""

# Settings of a scope.
RUNNING_CAP_MAX = 1_000_000
QUEUED_CAP_MAX = 10**12
WEIGHT_MAX = 1000
EXCLUDE_MAX = 1000
"""Groups that one claim may leave out."""
AHEAD_MAX = 10_000
"""How far `explain` counts the jobs ahead."""
HOLDERS_MAX = 20
"""How many holders of a limit `explain` names."""

# What one tenant may have.
QUEUES_MAX = 100_000
"""Queues with jobs."""
GROUPS_MAX = 1_000_000
"""Groups with jobs."""
SETTINGS_MAX = 10_000
"""Scopes that have, or ever had, settings."""
SLOTS_MAX = 100_000
"""Slots held by outsiders."""
PRESENCES_MAX = 1000
"""Workers present by tokens of the tenant."""

# Job types.
TYPES_MAX = 1000
"""Job types that a store has published; apps go on without publishing more."""

# One call.
BATCH_MAX = 1000
"""Items of one call of enqueue, extend, ack, cancel, settings or hold."""
CLAIM_MAX = 1000
PAGE_MAX = 1000
CHANGE_MAX = 1000
EXPIRED_MAX = 1000
PRUNE_MAX = 5000
SELECT_MAX = 100
"""Values of one field of a selection (ids may be BATCH_MAX)."""
WAIT_S_MAX = 60.0
QUICK_READ_S = 0.05
"""A page that takes longer to read waits in line with other searches (SQLite)."""
READ_S_MAX = 5.0
"""A search that takes longer is refused (SQLite)."""
SEARCHES_MAX = 4
"""Slow searches of one tenant that wait or run at a time (SQLite)."""
ROSTER_MAX = 5000
"""Workers that one look at who is present reads."""
LOAD_MAX = 20_000
"""Queues, and groups under a rule, that one look at the load counts; its answer says if it was so
many."""
SCOPES_MAX = 20_000
"""Scopes with settings that one look at the load reads; past them it goes without the rest."""

# Repair at claim time: due jobs and lapsed leases made ready before the claim looks.
REPAIR_MAX = 200
REPAIR_PASSES_MAX = 10

# The worker.
CONCURRENCY_MAX = 10_000
PREFETCH_MAX = 1000
ACKS_PENDING_MAX = 10_000
"""Outcomes waiting for the store; past this the worker claims nothing new."""
MISSES_MAX = 10
"""Releases for want of a handler or a codec before a job is dead-lettered."""
PROCESSES_MAX = 256
LOOKED_TENANTS_MAX = 100
"""Tenants whose held jobs a worker looks after at a time, between heartbeats; then the next."""
STRANGERS_MAX = 1000
"""Unknown types and codecs of which a worker warns; the names come from outside."""


def within(what: str, size: int, most: int) -> None:
    """Refuses a batch, page or step larger than its limit, before anything is done."""
    if not 0 <= size <= most:
        raise InvalidInput(field=what, why=f"is {size}, must be 0 to {most}")
