"""Journals over HTTP: pages are short, batches go in parts, both sides speak the same format."""

from __future__ import annotations

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.bounds import STEP_BYTES_MAX
from holdfast.core.errors import StoreUnsupported
from holdfast.core.journal import EntryKind, Signal
from holdfast.service.api.storage import JOURNALS
from holdfast.service.rights import Caller, Right
from holdfast.store import Ref
from holdfast.stores.remote import wire
from holdfast.testing.contract.builders import ACME, finding, job

ROOT = Caller(name="root", tenant=None, rights=frozenset(Right))


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("journals", auth=Tokens(ROOT))


async def test_a_page_with_journals_is_short(place: Place, opened: Opened) -> None:
    """P19: the service holds a page in its memory, and each journal may have a megabyte."""
    store = await opened(place, "root")
    names = [f"j{number:02}" for number in range(JOURNALS + 3)]
    await store.enqueue([job(name) for name in names])
    await store.signal([Signal(ACME, name, "ok", b"1") for name in names])

    seen, after = dict[Ref, object](), None
    for _ in range(len(names)):
        find = msgspec.structs.replace(finding(limit=100), journals=True, after=after)
        page = await store.find(find)
        assert len(page.journals) <= JOURNALS
        seen |= page.journals
        if (after := page.cursor) is None:
            break

    assert {ref.id for ref in seen} == set(names)


async def test_many_large_signals_go_in_parts(place: Place, opened: Opened) -> None:
    """A batch that is larger than a body; the answers stay in their places."""
    store = await opened(place, "root")
    number = store.hello.body_max // STEP_BYTES_MAX + 2
    names = [f"j{each}" for each in range(number)]
    await store.enqueue([job(name) for name in names])
    value = bytes(range(256)) * (STEP_BYTES_MAX // 256)

    answers = await store.signal([Signal(ACME, name, "ok", value) for name in names])

    assert [(answer.id, answer.stored) for answer in answers] == [(name, True) for name in names]
    find = msgspec.structs.replace(finding(ids=(names[-1],)), journals=True)
    [journal] = (await store.find(find)).journals.values()
    assert [(one.kind, one.value) for one in journal.entries] == [(EntryKind.SIGNAL, value)]


async def test_a_service_of_the_old_format_is_refused(
    place: Place, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would drop the journals of leases, and steps would run again."""
    store = await opened(place, "root")
    old = msgspec.structs.replace(store.hello, format=wire.FORMAT - 1)

    async def hello(self: object) -> wire.Hello:
        return old

    monkeypatch.setattr("holdfast.stores.remote.client.Client.hello", hello)
    with pytest.raises(StoreUnsupported, match="run one version"):
        await opened(place, "root")


async def test_steps_are_what_the_service_has(place: Place, opened: Opened) -> None:
    """Asked for when the store is opened."""
    assert (await opened(place, "root")).capabilities.steps
