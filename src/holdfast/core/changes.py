"""What a page of a source changes: rows of its shadow, and a job for each change. Pure.

The rows that a page names are read, the changes are computed here, and one step of the store writes
them, if the source is still as it was read. So each change is made by exactly one step.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.core.check import check_name
from holdfast.core.clock import Micros
from holdfast.core.codec import json_fault, to_plain
from holdfast.core.edge_bounds import (
    OBJECT_MAX,
    SHADOW_BODY_MAX,
    SHADOW_STEP_BYTES_MAX,
    SHADOW_VERSION_MAX,
    SOURCE_PAGE_BYTES_MAX,
    SOURCE_PAGE_MAX,
)
from holdfast.core.errors import InvalidInput, SourceError
from holdfast.core.job import Envelope, NewJob
from holdfast.core.shadow import ROW_BYTES, ShadowRow
from holdfast.core.source import (
    ChangeKind,
    Item,
    SourceChange,
    SourceState,
)

VERSION_MAX = 2**53
PAYLOAD_BYTES = 4096
"""What the payload of a change has at most besides the body, the id and the versions."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A checked item."""

    id: str
    version: str
    body: bytes
    deleted: bool

    @property
    def size(self) -> int:
        """The most bytes that it can add to a step: its row, and the payload of its job."""
        names = 3 * len(self.id.encode()) + 3 * len(self.version.encode())
        return 2 * len(self.body) + names + ROW_BYTES + PAYLOAD_BYTES


def entries(source: str, items: object) -> list[Entry]:
    """The checked items of a page. Raises SourceError, which says what is wrong with it."""
    if not isinstance(items, list | tuple):
        why = f"items= of a page must be a list, not {type(items).__name__}"
        raise SourceError(source=source, why=why)
    if len(items) > SOURCE_PAGE_MAX:
        why = f"a page has {len(items)} items, at most {SOURCE_PAGE_MAX}"
        raise SourceError(source=source, why=why)
    try:
        found = [_entry(item) for item in items]
    except InvalidInput as error:
        raise SourceError(source=source, why=f"an item cannot be kept: {error}") from None
    size = sum(len(one.body) for one in found)
    if size > SOURCE_PAGE_BYTES_MAX:
        why = f"a page has {size} bytes, at most {SOURCE_PAGE_BYTES_MAX}"
        raise SourceError(source=source, why=why)
    return found


def _entry(item: object) -> Entry:
    if not isinstance(item, Item):
        why = f"must be holdfast.sources.Item, not {type(item).__name__}"
        raise InvalidInput(field="item", why=why)
    if isinstance(item.id, bool) or not isinstance(item.id, int | str):
        raise InvalidInput(field="id", why=f"must be a number or text, is {item.id!r}")
    id = check_name("id", str(item.id), OBJECT_MAX)
    try:
        body = msgspec.json.encode(item.body, enc_hook=to_plain, order="sorted")
    except Exception as error:
        why = f"of item {id!r} cannot be written as JSON: {error}"
        raise InvalidInput(field="body", why=why) from None
    if len(body) > SHADOW_BODY_MAX:
        why = f"of item {id!r} has {len(body)} bytes, at most {SHADOW_BODY_MAX}"
        raise InvalidInput(field="body", why=why)
    return Entry(id, _version(item, body), body, item.deleted)


# A stored version has a mark in front: `#` a number, `=` a text, `~` a hash of the body.


def _version(item: Item, body: bytes) -> str:
    given = item.version
    if given is None:
        return f"~{hashlib.sha256(body).hexdigest()}"
    if isinstance(given, int) and not isinstance(given, bool):
        if not -VERSION_MAX < given < VERSION_MAX:
            raise InvalidInput(field="version", why=f"is {given}, must fit into 53 bits")
        return f"#{given}"
    return f"={check_name('version', given, SHADOW_VERSION_MAX - 1)}"


_NUMBER = re.compile(r"#-?[0-9]{1,16}\Z", re.ASCII)
_FORM = re.compile(r"=.|~[0-9a-f]{64}\Z", re.ASCII | re.DOTALL)


def check_row(row: ShadowRow) -> ShadowRow:
    """The row, if the library could have made it; for rows from outside."""
    if _NUMBER.match(row.version) is None and _FORM.match(row.version) is None:
        raise InvalidInput(field="version", why=f"{row.version!r} is not that of a row")
    if row.body and (fault := json_fault(row.body)) is not None:
        raise InvalidInput(field="body", why=fault)
    return row


def shown(version: str) -> int | str:
    """A stored version as the source gave it."""
    return int(version[1:]) if _NUMBER.match(version) else version[1:]


def _stale(new: str, old: str) -> bool:
    """Whether numbers say that the object was seen in a later state already."""
    numbers = _NUMBER.match(new) and _NUMBER.match(old)
    return bool(numbers) and int(new[1:]) < int(old[1:])


T = TypeVar("T")


def fitting(found: Sequence[T], size_of: Callable[[T], int], most: int) -> Sequence[T]:
    """The first of them that one step can take: at least one, if there are any."""
    size = 0
    for number, one in enumerate(found[:most]):
        size += size_of(one)
        if number and size > SHADOW_STEP_BYTES_MAX:
            return found[:number]
    return found[:most]


def row_size(row: ShadowRow) -> int:
    """The most bytes that marking a row as gone can add to a step."""
    return len(row.body) + 2 * row.size + PAYLOAD_BYTES


# -- changes ---------------------------------------------------------------------------------------


class Draft:
    """A step that is being made: a state, rows of it, and the jobs of what changed."""

    def __init__(
        self, tenant: str, source: str, state: SourceState, rows: Mapping[str, ShadowRow]
    ) -> None:
        self.tenant = tenant
        self.source = source
        self.state = state
        self.rows = dict(rows)
        self.put: dict[str, ShadowRow] = {}
        self.drop: list[str] = []
        self.jobs: list[NewJob] = []

    def absorb(self, found: Sequence[Entry], *, full: bool = False) -> None:
        """Compares items with the rows of the shadow, in their order. A page of a full listing is
        believed when it has an object again that was gone before the listing began, whatever its
        version: an object that was made anew may count from one.
        """
        for entry in found:
            row = self.rows.get(entry.id)
            there = row is not None and not row.gone
            again = full and not there and row is not None and row.seen < self.state.generation
            if row is not None and not again and _stale(entry.version, row.version):
                continue
            if entry.deleted:
                if row is not None and there:
                    self._gone(row, entry.version)
            elif row is None or not there:
                self._write(ChangeKind.CREATED, row, entry)
            elif row.version != entry.version:
                self._write(ChangeKind.UPDATED, row, entry)
            elif self.state.listing is not None and row.seen < self.state.generation:
                self._put(row, replace(row, seen=self.state.generation))

    def sweep(self, found: Sequence[ShadowRow], now: Micros) -> None:
        """Marks objects that the listing has not found as gone, and drops old tombstones."""
        for row in found:
            if row.gone:
                if row.at <= now - self.state.plan.keep_us:
                    self.drop.append(row.id)
                    self.state = replace(self.state, gone=self.state.gone - 1)
            elif row.seen < self.state.generation:
                self._gone(row, row.version)

    def _write(self, kind: ChangeKind, row: ShadowRow | None, entry: Entry) -> None:
        was = None if row is None or row.gone else row.version
        number = self._job(kind, entry.id, entry.version, was, entry.body)
        new = ShadowRow(entry.id, entry.version, number, self.state.generation, False, entry.body)
        self._put(row, new)

    def _gone(self, row: ShadowRow, version: str) -> None:
        number = self._job(ChangeKind.DELETED, row.id, version, row.version, row.body)
        self._put(row, ShadowRow(row.id, version, number, self.state.generation, True))

    def _put(self, before: ShadowRow | None, after: ShadowRow) -> None:
        """Puts a row, and counts what that changes."""
        state, listing = self.state, self.state.listing
        was = before is not None and not before.gone
        tomb = before is not None and before.gone
        objects = state.objects + (not after.gone) - was
        gone = state.gone + after.gone - tomb
        if listing is not None:
            old = was and before is not None and before.seen == state.generation
            found = listing.found + (not after.gone) - old
            listing = replace(listing, found=found)
        self.state = replace(state, objects=objects, gone=gone, listing=listing)
        self.rows[after.id] = self.put[after.id] = after

    def _job(self, kind: ChangeKind, id: str, version: str, before: str | None, body: bytes) -> int:
        """Adds the job of a change. Returns its number."""
        state = self.state
        number = state.number + 1
        totals = state.totals
        counts = {kind.value: getattr(totals, kind.value) + 1}
        self.state = replace(state, number=number, totals=replace(totals, **counts))
        change = SourceChange(
            source=self.source,
            kind=kind,
            id=id,
            number=number,
            version=shown(version),
            before=None if before is None else shown(before),
            body=msgspec.Raw(body or b"null"),
        )
        self.jobs.append(_change_job(self.tenant, state, change))
        return number

    def bare(self) -> bool:
        """Whether it changes no rows."""
        return not self.put and not self.drop


def _change_job(tenant: str, state: SourceState, change: SourceChange) -> NewJob:
    plan = state.plan
    spec = plan.change
    made = spec.job(tenant, change_id(tenant, change.source, state.mark, change.number))
    body = msgspec.json.encode({plan.field: change})
    return replace(made, envelope=Envelope(spec.type, spec.codec, spec.version, body))


def change_id(tenant: str, source: str, mark: str, number: int) -> str:
    """The id of the job of a change. No other change of the tenant has it, and the same change has
    no other.
    """
    name = f"{len(tenant)}:{tenant}:{len(source)}:{source}:{mark}:{number}"
    return f"change-{hashlib.sha256(name.encode()).hexdigest()[:40]}"
