"""Checks of the arguments of the contract's verbs. Each check names the field that it refuses.

`dispatch.py` runs the checks whose cost does not depend on the batch. It does not check the items
of an enqueue, an extend or an ack one by one: inside a process the library builds them from checked
values. A service checks them when they arrive from outside (`service/api/permissions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.bounds import (
    BATCH_MAX,
    CHANGE_MAX,
    CLAIM_MAX,
    DELAY_S_MAX,
    ENTRIES_MAX,
    ENTRY_NAME_MAX,
    EXCLUDE_MAX,
    GROUP_MAX,
    HOLD_S_MAX,
    ID_MAX,
    INSTANT_MAX,
    JOURNALS_MAX,
    KEY_MAX,
    LEASE_S_MAX,
    NAME_MAX,
    NOTE_MAX,
    PAGE_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PROGRESS_CHARS_MAX,
    QUEUE_MAX,
    SELECT_MAX,
    SETTING_MAX,
    TAG_MAX,
    TENANT_MAX,
    TYPE_MAX,
    WORKER_MAX,
    within,
)
from holdfast.core.check import check_name, check_nonce, check_token, check_whole
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.job import NewJob, Rules, State, check_new, check_rules
from holdfast.core.journal import OF_HANDLERS, Entry, EntryKind, Signal, check_awaits
from holdfast.core.lifecycle import Transition
from holdfast.core.mapped import text_most_of
from holdfast.store import Act, Change, Claim, Extension, Find, Put, Ref, Selection, Take, Watch

CURSOR_MAX = 2**63 - 1
DELAY_MAX = int(DELAY_S_MAX) * SECOND
LEASE_MAX = int(LEASE_S_MAX) * SECOND
CODEC_MAX = 64
PART_MAX = max(QUEUE_MAX, GROUP_MAX)

USUAL = Rules()

ACKED = frozenset({State.COMPLETED, State.FAILED, State.RETRYING, State.ENQUEUED, State.SCHEDULED})
"""The states that an ack can move a job to."""


# -- values of one call ----------------------------------------------------------------------------


def check_claim(claim: Claim) -> None:
    within("limit", claim.limit, CLAIM_MAX)
    within("exclude_groups", len(claim.exclude_groups), EXCLUDE_MAX)
    check_name("worker", claim.worker, WORKER_MAX)
    check_nonce("nonce", claim.nonce)
    check_whole("lease_us", claim.lease_us, 0, LEASE_MAX)
    check_names("exclude_groups", claim.exclude_groups, GROUP_MAX)
    _check_lines(claim)


def check_watch(watch: Watch) -> None:
    _check_lines(watch)
    if watch.job is not None:
        check_ref(watch.job)


def _check_lines(asked: Claim | Watch) -> None:
    if asked.tenants is not None:
        within("tenants", len(asked.tenants), BATCH_MAX)
        check_names("tenants", asked.tenants, TENANT_MAX)
    if asked.queues is not None:
        within("queues", len(asked.queues), BATCH_MAX)
        check_names("queues", asked.queues, QUEUE_MAX)


def check_selection(select: Selection) -> None:
    check_tenant(select.tenant)
    within("ids", len(select.ids), BATCH_MAX)
    check_names("ids", select.ids, ID_MAX)
    for field in ("queues", "types", "states", "groups", "tags", "reasons"):
        within(field, len(getattr(select, field)), SELECT_MAX)
    check_names("queues", select.queues, QUEUE_MAX)
    check_names("types", select.types, TYPE_MAX)
    check_names("groups", select.groups, GROUP_MAX)
    check_names("tags", select.tags, TAG_MAX)
    if select.key is not None:
        check_name("key", select.key, KEY_MAX)
    for field in ("created_from", "created_before", "failed_from", "failed_before"):
        check_cursor(field, getattr(select, field))


def check_find(find: Find) -> None:
    within("limit", find.limit, JOURNALS_MAX if find.journals else PAGE_MAX)
    check_cursor("after", find.after)
    check_selection(find.select)


def check_change(change: Change) -> None:
    within("limit", change.limit, CHANGE_MAX)
    check_cursor("after", change.after)
    check_selection(change.select)
    check_whole("priority", change.priority, PRIORITY_MIN, PRIORITY_MAX)
    check_whole("delay_us", change.delay_us, 0, DELAY_MAX)
    check_instant("run_at", change.run_at)
    if change.from_step is not None:
        check_name("from_step", change.from_step, ENTRY_NAME_MAX)
        if change.act is not Act.REPLAY:
            raise InvalidInput(field="from_step", why="is for replays only")
    if change.by is not None:
        change.by.checked()


def check_signal(signal: Signal) -> None:
    check_name("tenant", signal.tenant, TENANT_MAX)
    check_name("id", signal.id, ID_MAX)
    Entry(EntryKind.SIGNAL, signal.name, signal.value).checked()


def check_put(put: Put) -> Put:
    """The put, if nothing of it is too long."""
    check_name("name", put.name, NAME_MAX)
    within("value", len(put.value or b""), SETTING_MAX)
    check_whole("version", put.version, 0, CURSOR_MAX)
    return put


def check_take(take: Take) -> Take:
    """The take, if nothing of it is too long."""
    check_name("name", take.name, NAME_MAX)
    check_name("owner", take.owner, NAME_MAX)
    within("note", len(take.note.encode()), NOTE_MAX)
    check_whole("length_us", take.length_us, 0, int(HOLD_S_MAX) * SECOND)
    if "\x00" in take.note:
        raise InvalidInput(field="note", why="has a null character")
    return take


def check_ref(ref: Ref) -> None:
    check_name("tenant", ref.tenant, TENANT_MAX)
    check_name("id", ref.id, ID_MAX)


# -- items of a batch, for callers from outside ----------------------------------------------------


def check_job(job: NewJob) -> NewJob:
    """The job, if `enqueue.py` could have built it."""
    check_name("tenant", job.tenant, TENANT_MAX)
    check_name("queue", job.queue, QUEUE_MAX)
    check_name("type", job.envelope.type, TYPE_MAX)
    check_name("codec", job.envelope.codec, CODEC_MAX)
    check_new(job)
    check_whole("delay_us", job.delay_us, 0, DELAY_MAX)
    if job.ttl_us is not None:
        check_whole("ttl_us", job.ttl_us, 1, DELAY_MAX)
    if job.rules != USUAL:  # Checking a retry policy takes longer than all other checks.
        check_rules(job.rules)
    if job.origin is not None:
        check_name("origin", job.origin, ID_MAX)
    return job


def check_extension(one: Extension) -> Extension:
    """The extension, if it can be sent to a store."""
    check_name("tenant", one.tenant, TENANT_MAX)
    check_name("id", one.id, ID_MAX)
    check_token("token", one.token)
    check_whole("lease_us", one.lease_us, 0, LEASE_MAX)
    if one.progress is not None:
        most = text_most_of(one.progress, PROGRESS_CHARS_MAX)
        if len(one.progress) > most:
            why = f"has {len(one.progress)} characters, at most {most}"
            raise InvalidInput(field="progress", why=why)
    check_entries(one.entries)
    return one


def check_transition(one: Transition) -> Transition:
    """The transition, if `lifecycle.py` could have built it."""
    check_name("tenant", one.tenant, TENANT_MAX)
    check_name("id", one.id, ID_MAX)
    if one.token is not None:
        check_token("token", one.token)
    if one.to not in ACKED:
        raise InvalidInput(field="to", why=f"an ack cannot set the state {one.to.value}")
    if one.give_back and one.to not in (State.ENQUEUED, State.SCHEDULED):
        raise InvalidInput(
            field="give_back", why="is allowed only for a job that returns to its queue"
        )
    check_whole("delay_us", one.delay_us, 0, DELAY_MAX)
    check_instant("run_at", one.run_at)
    if one.awaits is not None:
        if one.to is not State.SCHEDULED:
            raise InvalidInput(field="awaits", why="is allowed only for a job that is parked")
        check_awaits(one.awaits)
    check_entries(one.entries)
    return one


def check_entries(entries: Sequence[Entry]) -> None:
    """Checks the journal entries of a run."""
    within("entries", len(entries), ENTRIES_MAX)
    for entry in entries:
        if entry.kind not in OF_HANDLERS:
            raise InvalidInput(field="kind", why=f"a run cannot write a {entry.kind.value}")
        entry.checked()


# -- single fields ---------------------------------------------------------------------------------


def check_tenant(tenant: str | None) -> None:
    """Checks a tenant; None: every tenant."""
    if tenant is not None:
        check_name("tenant", tenant, TENANT_MAX)


def check_prefix(field: str, prefix: str | None) -> None:
    """Checks a prefix of names of settings or holds, or the last name of the previous page."""
    if prefix:
        check_name(field, prefix, NAME_MAX)


def check_cursor(field: str, value: int | None, least: int = 0) -> None:
    if value is not None:
        check_whole(field, value, least, CURSOR_MAX)


def check_instant(field: str, value: int | None) -> None:
    if value is not None:
        check_whole(field, value, 0, INSTANT_MAX)


def check_names(field: str, names: Iterable[str], most: int) -> None:
    for name in names:
        check_name(field, name, most)
