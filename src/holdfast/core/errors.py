"""All errors in one tree, each with a stable code. Texts are constant; attributes hold the values.

HoldfastError
├── ConfigError                INVALID_CONFIG      a setting is wrong; names the field
│   ├── UnknownStore           UNKNOWN_STORE       no store handles this URL
│   ├── MissingExtra           MISSING_EXTRA       an optional package is not installed
│   ├── JobTypeAlreadyRegistered  TYPE_TAKEN
│   └── JobTypeNotRegistered   TYPE_UNKNOWN
├── InvalidInput               INVALID_INPUT       a value of a call is wrong; names the field
│   ├── PayloadTooLarge        PAYLOAD_TOO_LARGE
│   ├── InvalidPayload         INVALID_PAYLOAD     arguments do not fit the job type
│   ├── IdConflict             ID_CONFLICT         the id belongs to another job
│   ├── StaleSetting           STALE_SETTING       compare-and-set lost
│   └── StaleSource            STALE_SOURCE        the source was changed meanwhile
├── PlatformOnly               PLATFORM_ONLY       a tenant may not change this setting
├── QueueFull                  QUEUE_FULL          the tenant's cap on jobs or bytes is reached
├── TenantFull                 TENANT_FULL         the tenant has reached a fixed maximum
├── FlowRefused                FLOW_REFUSED        a node could not be made, so none was
├── BatchRefused               BATCH_REFUSED       another job could not be made, so this was not
├── CodecError                 CODEC
│   ├── CodecNotFound          CODEC_NOT_FOUND
│   └── DecodeError            DECODE
├── Refused                    REFUSED             the store refused an action on a job
│   ├── JobNotFound            JOB_NOT_FOUND       also for another tenant's job
│   ├── JobCanceled            JOB_CANCELED
│   ├── JobAlreadyTerminal     JOB_TERMINAL
│   ├── InvalidLeaseToken      INVALID_LEASE_TOKEN
│   ├── LeaseExpired           LEASE_EXPIRED
│   ├── NotChangeable          NOT_CHANGEABLE      its state forbids the change
│   └── JournalFull            JOURNAL_FULL        too many or too large steps or signals
├── KeyErased                  KEY_ERASED          the keys of the tenant were erased
├── ScheduleNotFound           SCHEDULE_NOT_FOUND  also for another tenant's schedule
├── WebhookNotFound            WEBHOOK_NOT_FOUND   also for another tenant's webhook
├── SignatureRefused           SIGNATURE_REFUSED   a delivery is not signed as it should be
├── SourceNotFound             SOURCE_NOT_FOUND    also for another tenant's source
├── SourceError                SOURCE              what a source gave cannot be used
├── JobFailed                  JOB_FAILED          the awaited job has failed; has its reason
├── WaitTimeout                WAIT_TIMEOUT
├── WorkerShutdown             WORKER_SHUTDOWN     a run must stop: its worker is stopping
├── Timeout                    JOB_TIMEOUT         a run must stop: it exceeded its time-out
├── StaleFence                 STALE_FENCE         a newer run has written the guarded row
├── BlobError                  BLOB
│   ├── BlobNotFound           BLOB_NOT_FOUND      also for another tenant's blob
│   └── BlobCorrupt            BLOB_CORRUPT        its bytes are not those of the reference
├── OutboundError              OUTBOUND
│   ├── OutboundRefused        OUTBOUND_REFUSED    a service's answer is not what was wanted
│   └── OutboundLost           OUTBOUND_LOST       no answer, and the call must not be repeated
└── StoreError                 STORE
    ├── StoreUnavailable       STORE_UNAVAILABLE   can be tried again
    ├── KeyUnavailable         KEY_UNAVAILABLE     a key cannot be had now; can be tried again
    │   └── BlobsUnavailable   BLOBS_UNAVAILABLE   the bucket does not answer; can be tried again
    ├── StoreReadOnly          STORE_READ_ONLY
    ├── StoreFull              STORE_FULL
    ├── StoreCorrupt           STORE_CORRUPT
    ├── SchemaTooNew           SCHEMA_TOO_NEW
    ├── SchemaTooOld           SCHEMA_TOO_OLD      run `holdfast migrate`
    └── StoreUnsupported       STORE_UNSUPPORTED   the store's capabilities exclude this
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class HoldfastError(Exception):
    """The root of all errors. The meaning of `code` never changes; `str()` is for people."""

    code: ClassVar[str] = "HOLDFAST"
    text: ClassVar[str] = "something went wrong"

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(facts)

    def __getattr__(self, name: str) -> object:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __str__(self) -> str:
        return self.text.format_map(self.facts)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.facts)


def _rebuild(kind: type[HoldfastError], facts: dict[str, object]) -> HoldfastError:
    return kind(**facts)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing."""
    close = get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


class ConfigError(HoldfastError):
    code = "INVALID_CONFIG"
    text = "setting {field!r}: {why}"


class UnknownStore(ConfigError):
    code = "UNKNOWN_STORE"
    text = "no store handles {scheme!r} (known: {known}).{hint}"


class MissingExtra(ConfigError):
    code = "MISSING_EXTRA"
    text = "{what} needs the package {package!r}: pip install 'holdfast[{extra}]'"


class JobTypeAlreadyRegistered(ConfigError):
    code = "TYPE_TAKEN"
    text = "job type {type!r} is already registered by {owner}; give one of them another name="


class JobTypeNotRegistered(ConfigError):
    code = "TYPE_UNKNOWN"
    text = "job type {type!r} is not registered with this app.{hint}"


class InvalidInput(HoldfastError):
    code = "INVALID_INPUT"
    text = "{field}: {why}"


class PayloadTooLarge(InvalidInput):
    code = "PAYLOAD_TOO_LARGE"
    text = (
        "{field}: {size} bytes, at most {max} are allowed; "
        "store large data elsewhere and pass a reference"
    )


class InvalidPayload(InvalidInput):
    code = "INVALID_PAYLOAD"
    text = "arguments of {type!r}: {why}"


class IdConflict(InvalidInput):
    code = "ID_CONFLICT"
    text = "id {id!r} belongs to another job of this tenant, of type {type!r} in queue {queue!r}"


class StaleSetting(InvalidInput):
    code = "STALE_SETTING"
    text = "setting {name!r} is at version {version}, not {expected}: read it again, then change it"


class StaleSource(InvalidInput):
    code = "STALE_SOURCE"
    text = "source {source!r} was changed meanwhile: read it again, then change it"


class PlatformOnly(HoldfastError):
    code = "PLATFORM_ONLY"
    text = "{field}: {why}"


QUEUE_FULL_RETRY_S = 1.0
"""When the caller of a tenant whose cap is reached may try again."""


class QueueFull(HoldfastError):
    code = "QUEUE_FULL"
    text = (
        "tenant {tenant!r} is full: {what} waiting {queued}, at most {max}; "
        "try again in {retry_after_s} s"
    )


class TenantFull(HoldfastError):
    code = "TENANT_FULL"
    text = "tenant {tenant!r} has {max} {what}, the most that a tenant may have"


class FlowRefused(HoldfastError):
    code = "FLOW_REFUSED"
    text = "flow {id!r} was not started: {node}: {why}"


class BatchRefused(HoldfastError):
    code = "BATCH_REFUSED"
    text = "job {id!r} was not created, because another job of the same call was not"


class CodecError(HoldfastError):
    code = "CODEC"
    text = "codec {codec!r}: {why}"


class CodecNotFound(CodecError):
    code = "CODEC_NOT_FOUND"
    text = "no codec {codec!r} is registered (known: {known}); pickle must be switched on by name"


class DecodeError(CodecError):
    code = "DECODE"
    text = "payload of type {type!r} cannot be read: {why}"


class Refused(HoldfastError):
    code = "REFUSED"
    text = "job {id!r}: refused"


class JobNotFound(Refused):
    code = "JOB_NOT_FOUND"
    text = "job {id!r}: not found"


class JobCanceled(Refused):
    code = "JOB_CANCELED"
    text = "job {id!r}: canceled"


class JobAlreadyTerminal(Refused):
    code = "JOB_TERMINAL"
    text = "job {id!r}: already finished"


class InvalidLeaseToken(Refused):
    code = "INVALID_LEASE_TOKEN"
    text = "job {id!r}: the lease token is not the current one"


class LeaseExpired(Refused):
    code = "LEASE_EXPIRED"
    text = "job {id!r}: the lease has expired"


class NotChangeable(Refused):
    code = "NOT_CHANGEABLE"
    text = "job {id!r}: cannot be changed while {state}"


class JournalFull(Refused):
    code = "JOURNAL_FULL"
    text = "job {id!r}: {why}"


class KeyErased(HoldfastError):
    code = "KEY_ERASED"
    text = "the encryption keys of tenant {tenant!r} were erased: nothing new can be stored for it"


class ScheduleNotFound(HoldfastError):
    code = "SCHEDULE_NOT_FOUND"
    text = "schedule {schedule!r}: not found.{hint}"


class WebhookNotFound(HoldfastError):
    code = "WEBHOOK_NOT_FOUND"
    text = "webhook {webhook!r}: not found.{hint}"


class SignatureRefused(HoldfastError):
    code = "SIGNATURE_REFUSED"
    text = "signature: {why}"


class SourceNotFound(HoldfastError):
    code = "SOURCE_NOT_FOUND"
    text = "source {source!r}: not found.{hint}"


class SourceError(HoldfastError):
    code = "SOURCE"
    text = "source {source!r}: {why}"


class JobFailed(HoldfastError):
    code = "JOB_FAILED"
    text = "job {id!r} failed ({reason}): {error}"


class WaitTimeout(HoldfastError):
    code = "WAIT_TIMEOUT"
    text = "job {id!r} did not finish within {timeout_s} s"


class WorkerShutdown(HoldfastError):
    """Raised by `ctx.check()`: the job is released without using the attempt, and runs again."""

    code = "WORKER_SHUTDOWN"
    text = "job {id!r}: its worker is stopping; the job is released to its queue"


class Timeout(HoldfastError):
    """Raised by `ctx.check()`: the run exceeded its time-out, and the attempt has failed."""

    code = "JOB_TIMEOUT"
    text = "job {id!r}: the run exceeded its time-out"


class StaleFence(HoldfastError):
    code = "STALE_FENCE"
    text = "{table}: a newer run has written the row of {key}: its fence is {found}, ours {fence}"


class BlobError(HoldfastError):
    code = "BLOB"
    text = "blob {id!r}: {why}"


class BlobNotFound(BlobError):
    code = "BLOB_NOT_FOUND"
    text = "blob {id!r}: not found"


class BlobCorrupt(BlobError):
    """The bytes that were read are not those that the reference names."""

    code = "BLOB_CORRUPT"


class OutboundError(HoldfastError):
    code = "OUTBOUND"
    text = "{method} {place}: {why}"


class OutboundRefused(OutboundError):
    """The service answered, but not with what the handler wanted. `status` is its status."""

    code = "OUTBOUND_REFUSED"


class OutboundLost(OutboundError):
    """No answer came to a call without an idempotency key. It may have been done."""

    code = "OUTBOUND_LOST"


class StoreError(HoldfastError):
    code = "STORE"
    text = "store {store}: {why}"


class StoreUnavailable(StoreError):
    code = "STORE_UNAVAILABLE"


class KeyUnavailable(StoreError):
    """A key or a blob cannot be had now. The job waits; the others of the call are not affected."""

    code = "KEY_UNAVAILABLE"


class BlobsUnavailable(KeyUnavailable):
    code = "BLOBS_UNAVAILABLE"
    text = "bucket {bucket}: {why}"


NOT_OPEN = "it is not open: use `async with app:`, or app.sync in blocking code"
"""The text for a store that was not opened."""


class StoreReadOnly(StoreError):
    code = "STORE_READ_ONLY"
    text = "store {store}: cannot be written: {why}"


class StoreFull(StoreError):
    code = "STORE_FULL"
    text = "store {store}: no space left: {why}"


class StoreCorrupt(StoreError):
    code = "STORE_CORRUPT"


class SchemaTooNew(StoreError):
    code = "SCHEMA_TOO_NEW"
    text = (
        "store {store}: its schema is version {found}, this holdfast knows up to {known}; "
        "upgrade holdfast"
    )


class SchemaTooOld(StoreError):
    code = "SCHEMA_TOO_OLD"
    text = (
        "store {store}: its schema is version {found}, this holdfast needs {known}; "
        "run `holdfast migrate`, or open it with migrate=auto"
    )


class StoreUnsupported(StoreError):
    code = "STORE_UNSUPPORTED"
    text = "store {store}: does not support {feature}"


REFUSALS: dict[str, type[Refused]] = {
    kind.code: kind
    for kind in (JobNotFound, JobCanceled, JobAlreadyTerminal, InvalidLeaseToken, LeaseExpired)
}
