"""Limits: every loop, page, batch, payload and buffer is bounded by a constant of this file."""

from __future__ import annotations

from holdfast.core.errors import InvalidInput

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
"""Names of settings and holds. The name of a slot contains its tenant, its group and its id."""
REASON_MAX = 256
"""Reason and author of an operator's action."""
NAME_BYTES_MAX = 2600
"""Bytes of one name in UTF-8, and of an idempotency key with its tenant, queue and type. An index
row of PostgreSQL holds at most 2,704 bytes.
"""
TOKEN_MAX = 256
"""Length of a lease token: the nonce of the claim, a dot, and the sequence of the job."""
NONCE_MAX = 128

# Bodies, in bytes unless stated otherwise.
PAYLOAD_MAX = 256 * 1024
RESULT_MAX = 64 * 1024
ERROR_CHARS_MAX = 8 * 1024
"""Longer error texts are cut; head and tail are kept. A long error must not fail an ack."""
PROGRESS_CHARS_MAX = 1024
MAPPED_MORE = 1024
"""What a mapper may add to a value: encryption adds its header, up to an id of 128 characters."""
JSON_DEPTH_MAX = 128
"""Nesting levels of a JSON payload or result: JSON parsers of other languages accept at least
these.
"""
SETTING_MAX = 64 * 1024
NOTE_MAX = 2048
"""The note of a hold, such as a worker's description of itself or the purpose of a slot."""

# Numbers of a job.
PRIORITY_MIN = -(2**31)
PRIORITY_MAX = 2**31
ATTEMPTS_MAX = 1000
DELAYS_MAX = 100
"""Entries of a retry policy of kind `list`."""
DELAY_S_MAX = 100 * 366 * 24 * 3600.0
LEASE_S_MAX = 7 * 24 * 3600.0
HOLD_S_MAX = 31 * 24 * 3600.0
"""Longest duration of a hold that is not renewed."""
PRESENCE_S_MAX = 600.0
"""How long a worker counts as present without renewing its hold."""
PERMIT_LIFE_S = 1.0
"""After how long what a dead process left at a limit of the platform is taken back, where a store
divides the limit among its shards."""
LIMIT_QUIET_S = 0.1
"""How long a process that found the whole store at its limit relies on what it saw then."""
CLAIM_REPEAT_S = 60.0
"""How long a repeated claim is recognised by its nonce, so that it leases no further jobs."""
INSTANT_MAX = 7_258_118_400_000_000
"""Microseconds: the beginning of the year 2200. Every store counts exactly up to 2**53."""
VERSION_MAX = 2**31 - 1
"""Schema version of a job type."""

# The journal of a job.
ENTRY_NAME_MAX = 128
STEPS_MAX = 1000
"""Steps, positions and joins of a job."""
STEP_BYTES_MAX = 64 * 1024
"""The result of one step, or the value of one signal."""
STEPS_BYTES_MAX = 1024 * 1024
"""All steps, positions and signals of a job together."""
SIGNALS_MAX = 100
SIGNALS_SHARE = 2
"""Up to so many times `max_bytes` signals may fill a tenant."""
ERRORS_MAX = 10
"""Attempts of a job whose errors are kept."""
ERROR_BYTES_MAX = 16 * 1024
LOGS_MAX = 64
"""Log entries of a job, each with several lines; a further one replaces the oldest."""
LOG_BYTES_MAX = 8 * 1024
LEASE_JOURNAL_MAX = 16 * 1024
"""Bytes of a journal that a lease brings: a claim gives a thousand leases. A larger one is left out
and read for one job at a time, before its run.
"""
JOURNALS_MAX = 100
"""Jobs whose journals one page may bring."""
JOURNALS_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the journals of such a page. It ends with the job that exceeds them."""
STEP_TRIES_MAX = 20
"""Tries of a step within one run."""
ENTRIES_MAX = 100
"""Entries of one extension or transition."""

# The caller's own connection.
COMMIT_S_MAX = 10.0
"""How long after the ack of a job in the handler's transaction the commit may take (PostgreSQL)."""
EFFECT_LOCK_S = 30.0
"""How long `exactly_once` waits for the write lock of the file (SQLite)."""
HINTS_PENDING_MAX = 1000
"""Transactions of callers whose commit the store looks out for, to wake sleepers (SQLite)."""
HINT_KEEP_S = 60.0
"""How long it does."""

# The deploy check.
CHECK_GROUPS_MAX = 1000
"""Kinds of payloads that one report tells apart. Types can be named by anybody who enqueues."""
CHECK_SAMPLES_MAX = 100

# Flows.
EDGES_MAX = 10_000
"""Edges of one job: how many others may await its end."""
PARENTS_MAX = 10_000
JOIN_MAX = 100_000
"""Jobs that one join may await."""
RELEASE_MAX = 1000
"""Edges that one call follows when a job ends; claims follow the rest, as many in each."""
FLOW_NODES_MAX = 10_000
FLOW_EDGES_MAX = 100_000
"""Edges between the nodes of a flow."""
FLOW_DEPTH_MAX = 8
"""Levels of flows within flows."""
MAP_MAX = 100_000
"""Jobs that a map of a flow makes."""
UNDO_MAX = 500
"""Compensations of a flow. Its head remembers each in a step."""
FINALLY_MAX = 20
RESOLVED_BYTES_MAX = 16 * 1024 * 1024
"""Results of other jobs that the arguments of one job may bring into a worker."""
NODES_READ = 100
"""Nodes of a flow that are read in one page: each can have a payload of 256 KiB."""
FLOWS_PAGE_MAX = 100
START_S = 300.0
"""When what remains of a start of a flow that was cut off is removed."""
KEEP_AGAIN_S = 60.0
"""When `prune` looks again at an ended job whose result a living job may still want."""

# Settings of a scope.
RUNNING_CAP_MAX = 1_000_000
QUEUED_CAP_MAX = 10**12
WEIGHT_MAX = 1000
EXCLUDE_MAX = 1000
"""Groups that one claim may exclude."""
AHEAD_MAX = 10_000
"""Up to how many jobs ahead `explain` counts."""
HOLDERS_MAX = 20
"""How many jobs or slots that use up a limit `explain` names."""

# What one tenant may have.
QUEUES_MAX = 100_000
"""Queues with jobs."""
GROUPS_MAX = 100_000
"""Groups with jobs."""
SETTINGS_MAX = 10_000
"""Scopes that have settings, or ever had them."""
SLOTS_MAX = 100_000
"""Held slots."""
TIERS_MAX = 1000
"""Tiers of the platform, its defaults included."""
PRESENCES_MAX = 1000
"""Workers that are present with a token of the tenant."""

# Schedules.
CRON_MAX = 256
"""Characters of a cron text."""
ZONE_MAX = 128
SCHEDULE_MAX = 55
"""Characters of a schedule's name: it is part of a tag."""
SCHEDULES_MAX = 10_000
"""Schedules of a tenant."""
SCHEDULE_BODY_MAX = 32 * 1024
"""Bytes of the payload that a schedule gives its jobs: a setting holds it."""
SCHEDULE_TAGS_MAX = TAGS_MAX - 2
"""Tags of its jobs besides the two that name the schedule and the tick."""
EDITS_MAX = 10
"""Changes of a schedule that its definition names."""
MISSED_MAX = 1000
"""Missed ticks that `missed="all"` makes up for; the newest."""
BACKFILL_MAX = 1000
"""Ticks of one backfill."""
EARLIER_MAX = 10
"""Earlier ticks whose jobs a tick looks at to decide about overlap."""
FAN_OUT_PART = 100
"""Tenants of one part of a tick that makes a job for each of many."""
FAN_OUT_MAX = 1_000_000
"""Tenants of one tick."""
RECUR_PAGE = 200
"""Schedules that one turn of the upkeep checks."""
RECUR_LOOKS_MAX = 20
"""Schedules of which one turn searches for a late tick."""

# Job types.
TYPES_MAX = 1000
"""Published job types of a store. Apps run without publishing more."""

# One call.
BATCH_MAX = 1000
"""Items of one call of enqueue, extend, ack, cancel, settings or hold."""
CALL_BYTES_MAX = 8 * 1024 * 1024
"""Payload bytes that the library puts into one call of enqueue."""
WHOLE_BYTES_MAX = 4 * 1024 * 1024
"""The same, of jobs that are stored all or none. It is less than a service takes in one body, so
that no call has to be split.
"""
CLAIM_MAX = 1000
ASIDE_MAX = 1000
"""Jobs, or lines, that one claim sets aside because a limit of the platform leaves no room."""
PAGE_MAX = 1000
CHANGE_MAX = 1000
EXPIRED_MAX = 1000
PRUNE_MAX = 5000
COPIES_MAX = 100
"""Tiers of which one call tells a shard, where each shard has a copy of them (Redis)."""
COPY_PASSES_MAX = 100
"""Rounds of such calls that one verb makes."""
SELECT_MAX = 100
"""Values of one field of a selection (ids may be BATCH_MAX)."""
WAIT_S_MAX = 60.0
QUICK_READ_S = 0.05
"""A page that takes longer to read is queued with other slow searches (SQLite)."""
READ_S_MAX = 5.0
"""A search that takes longer is refused (SQLite)."""
SEARCHES_MAX = 4
"""Slow searches of one tenant that may wait or run at the same time (SQLite)."""
WORKERS_MAX = 5000
"""Workers that one listing of present workers reads."""
LOAD_MAX = 20_000
"""Queues, and groups with limits, that one call of `load` counts. The answer says if there are
more.
"""
SCOPES_MAX = 20_000
"""Scopes with settings that one call of `load` reads. It ignores any further ones."""

# Repair at claim time: due jobs and expired leases are made ready before the claim selects.
REPAIR_MAX = 200
REPAIR_PASSES_MAX = 10
CLAIM_PARTS_MAX = 20
"""Calls of the server that one claim makes where much was written before it (PostgreSQL)."""

# The worker.
CONCURRENCY_MAX = 10_000
PREFETCH_MAX = 1000
ACKS_PENDING_MAX = 10_000
"""Outcomes that wait for the store. Above this number the worker stops claiming."""
MISSES_MAX = 10
"""Releases for an unknown type or codec before the job becomes a dead letter."""
PROCESSES_MAX = 256
LOOKED_TENANTS_MAX = 100
"""Tenants whose jobs a worker checks for cancels in one round between heartbeats."""
STRANGERS_MAX = 1000
"""Unknown types and codecs that a worker logs. Bounded, because the names come from outside."""


def within(what: str, size: int, most: int) -> None:
    """Refuses a batch, page or step larger than its limit, before anything is done."""
    if not 0 <= size <= most:
        raise InvalidInput(field=what, why=f"is {size}, must be 0 to {most}")
