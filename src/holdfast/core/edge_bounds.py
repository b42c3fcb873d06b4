"""The bounds of what meets other systems: calls, blobs, keys, webhooks and sources."""

from __future__ import annotations

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
