"""The filters of a list of jobs: the fields of its form, also in its address."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec

from holdfast.core.bounds import GROUP_MAX, ID_MAX, QUEUE_MAX, TAG_MAX, TENANT_MAX, TYPE_MAX
from holdfast.core.check import check_name
from holdfast.core.clock import Micros, instant
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.job import Reason, State
from holdfast.dashboard.host import Viewer
from holdfast.store import Selection

_NAMES = {
    "tenant": TENANT_MAX,
    "queue": QUEUE_MAX,
    "type": TYPE_MAX,
    "group": GROUP_MAX,
    "tag": TAG_MAX,
    "id": ID_MAX,
}
CURSOR_DIGITS = 19


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters. An empty field does not restrict."""

    tenant: str = ""
    state: str = ""
    queue: str = ""
    type: str = ""
    group: str = ""
    tag: str = ""
    reason: str = ""
    id: str = ""
    failed_from: str = ""
    failed_before: str = ""

    def given(self) -> dict[str, str]:
        """The filters that are set."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def query(self, **more: object) -> str:
        """The filters as the query of an address."""
        return urlencode({**self.given(), **{k: v for k, v in more.items() if v not in (None, "")}})

    def but(self, **changes: str) -> Filters:
        return msgspec.structs.replace(self, **changes)

    def selection(self, viewer: Viewer, *, before: Micros | None = None) -> Selection:
        """The selection, restricted to what the viewer may see."""
        tenant = viewer.check_tenant(self.tenant) if self.tenant else viewer.tenant
        if self.queue:
            queues: tuple[str, ...] = (viewer.check_queue(self.queue),)
        else:
            queues = viewer.queues or ()
        return Selection(
            tenant=tenant,
            ids=_one(self.id),
            queues=queues,
            types=_one(self.type),
            states=(State(self.state),) if self.state else (),
            groups=_one(self.group),
            tags=_one(self.tag),
            reasons=(Reason(self.reason),) if self.reason else (),
            created_before=before,
            failed_from=_instant("failed_from", self.failed_from),
            failed_before=_instant("failed_before", self.failed_before),
        )


def _one(value: str) -> tuple[str, ...]:
    return (value,) if value else ()


def _instant(name: str, text: str) -> Micros | None:
    """An instant from a browser's input field, which has no time zone; taken as UTC."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return instant(at if at.tzinfo is not None else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise InvalidInput(field=name, why="is not an instant; write 2026-01-31T12:00") from None


def read(params: Mapping[str, str]) -> Filters:
    """The filters of a query or a form. Raises InvalidInput, which names the invalid field."""
    found = {
        name: value for name in Filters.__struct_fields__ if (value := params.get(name, "").strip())
    }
    for name, most in _NAMES.items():
        if name in found:
            check_name(name, found[name], most)
    for name, kind in (("state", State), ("reason", Reason)):
        if name in found and found[name] not in list(kind):
            hint = did_you_mean(found[name], list(kind))
            raise InvalidInput(field=name, why=f"there is no {found[name]!r}.{hint}")
    for name in ("failed_from", "failed_before"):
        _instant(name, found.get(name, ""))
    return Filters(**found)


def cursor(params: Mapping[str, str], name: str = "after") -> int | None:
    """A whole number from a link of a page; None if there is none."""
    text = params.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > CURSOR_DIGITS:
        raise InvalidInput(field=name, why="is not a value of this page")
    return min(int(text), 2**63 - 1)
