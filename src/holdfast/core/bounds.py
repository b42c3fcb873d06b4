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

# Calls of handlers to other services.
OUTBOUND_BODY_MAX = 8 * 1024 * 1024
"""Bytes of the body of one request."""
OUTBOUND_ANSWER_MAX = 8 * 1024 * 1024
"""Bytes of the body of one answer; the rest of a larger one is not read."""
OUTBOUND_PATH_MAX = 2048
"""Characters of a path."""
OUTBOUND_CONNECTIONS_MAX = 1000
"""Connections of one client in one event loop."""
OUTBOUND_BUDGET_S_MAX = 3600.0
"""How long one call may take with all its tries."""
OUTBOUND_AFTER_S_MAX = 24 * 3600.0
"""The longest Retry-After that is followed: an answer must not delay a job for years."""
OUTBOUND_KEYS_MAX = 1000
"""Idempotency keys of one run that are compared, so that no key is used for two requests."""

# Payloads by reference.
BLOB_MAX = 32 * 1024 * 1024 * 1024
"""Bytes of one blob: what S3 takes in 10,000 parts of BLOB_PART."""
BLOB_PART = 5 * 1024 * 1024
"""Bytes of a blob that are sent together."""
BLOB_PARTS_MAX = 2
"""Parts of one blob that are sent at the same time. They are in memory."""
BLOB_CHUNK = 1024 * 1024
"""Bytes of a blob that are read together."""
BLOB_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a blob that `read_bytes` takes into memory, unless its caller allows more."""
BLOB_NAP_S = 60.0
"""How long a bucket may take for the next bytes of a blob."""
BLOB_CALL_S = 30.0
"""How long a small call of a bucket may take with all its tries."""
BLOB_HOLD_S = 5.0
"""How long a new holder of a blob waits for the upkeep, which may be deleting it."""
BLOB_KNOWN_MAX = 10_000
"""Notes of holders that a process remembers to have written."""
BLOB_KNOWN_S = 900.0
"""For how long it relies on them: at most this, and at most a quarter of the grace."""
BLOB_GRACE_S_MIN = 60.0
BLOB_USAGE_S = 60.0
"""How long a process relies on what it read about the bytes of a tenant."""
BLOB_SEGMENT_MAX = 128
"""Characters of a tenant or an id in a path. A longer one is a hash."""
BLOBS_NAMED_MAX = 200
"""Blobs that one payload, result, step or signal may name."""
BLOBS_AT_ONCE_MAX = 8
"""Calls of a bucket that one batch makes at the same time."""
OFFLOADED_MAX = 8 * 1024 * 1024
"""Bytes of a payload, result or step that is offloaded: a worker has it in memory."""
MEDIA_TYPE_MAX = 128
BLOB_REPLAYS_MAX = 100
"""Replays of replays of a job that is gone, among which upkeep looks for one that lives."""
SWEEP_SHARDS = 256
"""Parts of a bucket. One turn of the upkeep looks at one of them."""
SWEEP_PAGE = 500
"""Blobs of a part that one step decides about."""
SWEEP_FIND = 100
"""Jobs that are looked up together: each may have a payload of 256 KiB."""
SWEEP_TENANTS_MAX = 100_000
"""Tenants whose bytes one round of the sweep adds up."""
SWEEP_HELD_MAX = 50_000
"""Notes of holders of a part that are read together. Where there are more, those of each blob are
read.
"""

# Encryption.
KEY_ID_MAX = 64
"""Characters of the id of a key."""
KEYS_MAX = 100
"""Data keys of a tenant, and master keys of a process."""
KEYS_CACHED_MAX = 10_000
"""Tenants whose keys a process remembers; of keys of a callable, so many keys."""
KEYS_FRESH_S = 60.0
"""How long a process relies on the keys that it has read: then it reads them again."""
KEYS_AT_ONCE = 16
"""Tenants whose keys one call reads at the same time."""
KEY_CALL_S = 10.0
"""How long the provider of a key may take."""
KEY_AGAIN_S = 1.0
"""How long a provider that failed for a key is not asked for it again."""
KEYS_BYTES_MAX = 64 * 1024
"""The text of master keys, in a variable or a file."""
REPLAYS_MAX = 1000
"""Replays of replays that one encrypted value can be copied into."""

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

# Webhooks.
WEBHOOK_MAX = 55
"""Characters of a webhook's name: it is part of a tag."""
WEBHOOKS_MAX = 20
"""Webhooks of a tenant."""
WEBHOOK_URL_MAX = 2048
WEBHOOK_FILTER_MAX = 50
"""Types, or queues, that one webhook names."""
WEBHOOK_HEADERS_MAX = 10
WEBHOOK_HEADERS_BYTES_MAX = 4096
"""Names and values of a webhook's own headers together."""
WEBHOOK_SECRET_MIN = 16
WEBHOOK_SECRET_MAX = 128
"""Characters of a secret."""
WEBHOOK_SECRETS_MAX = 2
"""Secrets that sign at once: the new one and the one before, during a rotation."""
WEBHOOK_KEEP_S_MAX = 30 * 24 * 3600.0
"""How long the secret before goes on signing after a rotation."""
WEBHOOK_ATTEMPTS_MAX = 50
"""Attempts of one delivery."""
WEBHOOK_PAUSE_S_MAX = 30 * 24 * 3600.0
"""How long a webhook may fail before it pauses itself."""
WEBHOOK_RUNNING = 4
"""Deliveries of a webhook that run at the same time, unless its group says otherwise."""
WEBHOOK_WAITING_MAX = 1000
"""Deliveries of a webhook that have not ended. Further events wait in the log of events."""
WEBHOOK_PAGE = 100
"""Webhooks that one turn of the upkeep reads events for."""
WEBHOOK_EVENTS = 500
"""Events of a tenant that one round of the upkeep reads, shared by the tenant's webhooks."""
WEBHOOK_READ_AHEAD = 10_000
"""Webhooks whose unwritten positions the upkeep remembers."""
WEBHOOK_NOTE_MAX = 1024
"""Characters of an event's note, and of an error text, that are sent."""
WEBHOOK_INCLUDE_MAX = 64 * 1024
"""Bytes of a payload or a result that are sent; a larger one is left out."""
WEBHOOK_BODY_MAX = 1024 * 1024
"""Bytes of a delivery that `verify` accepts. Holdfast sends less."""
WEBHOOK_SIGNATURES_MAX = 10
"""Signatures in one header that `verify` compares."""
WEBHOOK_WINDOW_S_MAX = 24 * 3600.0
"""The longest replay window of `verify`."""
WEBHOOK_LOOKUPS = 32
"""Look-ups of host names that a process does at the same time."""
WEBHOOK_LOOKUPS_OF_TENANT = 4
"""Those of them that are of one tenant."""
WEBHOOK_HOSTS_MAX = 1000
"""Hosts whose circuits a process remembers, each of one tenant."""
WEBHOOK_ALLOW_MAX = 1000
"""Networks and hosts that `webhooks_allow` names."""

# Sources.
SOURCE_MAX = 40
"""Characters of a source's name: it is part of the name of a schedule."""
SOURCES_MAX = 1000
"""Sources of a tenant."""
OBJECT_MAX = 256
"""Characters of the id of an object."""
SOURCE_OBJECTS_MAX = 1_000_000
"""Rows of the shadow of one source, tombstones included."""
SOURCE_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Bytes of these rows."""
SOURCE_STATE_MAX = 32 * 1024
"""Bytes of the stored state of a source."""
SOURCE_CURSOR_MAX = 4 * 1024
"""Bytes of a cursor in JSON."""
SOURCE_PAGE_MAX = 1000
"""Items of one page that a source gives."""
SOURCE_PAGE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of the bodies of such a page."""
SOURCE_PAGES_MAX = 10_000
"""Pages of one poll."""
SOURCE_LISTING_PAGES_MAX = 100_000
"""Pages of one full listing."""
SOURCE_RUN_PAGES = 20
"""Pages that one run of a poll reads before it lets other jobs run."""
SOURCE_TRIES_MAX = 20
"""How often a step is tried again after a concurrent change of the source."""
SHADOW_VERSION_MAX = 256
"""Characters of the version of an object."""
SHADOW_BODY_MAX = 64 * 1024
"""Bytes of the body of an object."""
SHADOW_ROWS_MAX = 100
"""Rows, and jobs, of one step of a source, and rows or sources that one call reads."""
SHADOW_STEP_BYTES_MAX = 2 * 1024 * 1024
"""Bytes of the rows and the payloads of the jobs of one step."""

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
