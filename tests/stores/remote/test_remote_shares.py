"""What one tenant's tokens may use up over a remote store, and what its pages show."""

from __future__ import annotations

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core import bounds
from holdfast.core.bounds import NOTE_MAX, PAGE_MAX, PRESENCE_S_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, SchemaTooNew, StoreUnsupported, TenantFull
from holdfast.core.job import By, EventKind
from holdfast.service.rights import Caller, Right, rights
from holdfast.store import Claim, Ref, Take
from holdfast.stores.remote import wire
from holdfast.stores.remote.client import Client
from holdfast.testing.contract.builders import ACME, AUDIO, GLOBEX, LEASE, MAIL, ids, job, queue_of
from holdfast.worker_registry import PREFIX, Present, present_workers

ALL = frozenset(Right)
CALLERS = (
    Caller(name="root", tenant=None, rights=ALL),
    Caller(name="acme", tenant=ACME, rights=ALL),
    Caller(name="globex", tenant=GLOBEX, rights=ALL),
    Caller(name="worker", tenant=ACME, rights=rights([Right.WORK, Right.READ])),
    Caller(name="two", tenant=ACME, rights=ALL, queues=("q2", "q5")),
)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("shares", auth=Tokens(*CALLERS))


def note(*tenants: str, types: tuple[str, ...] = ("send",)) -> str:
    present = Present(
        pid=7, tenants=tenants or None, queues=None, types=types, concurrency=2, running=1, held=1
    )
    return msgspec.json.encode(present).decode()


def present(name: str, length_s: float = 60.0, said: str | None = None) -> Take:
    length = int(length_s * SECOND)
    return Take(f"{PREFIX}{name}", name, length, note() if said is None else said)


async def test_a_tenant_has_so_many_workers_present(
    place: Place, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P19: one more is refused whole, those that are there renew, and no other tenant notices."""
    monkeypatch.setattr(bounds, "PRESENCES_MAX", 3)
    worker, globex = await opened(place, "worker"), await opened(place, "globex")
    await worker.hold([present(f"w{n}") for n in range(3)])

    with pytest.raises(TenantFull, match="3 workers"):
        await worker.hold([present("w1"), present("w3")])

    await worker.hold([present(f"w{n}") for n in range(3)])
    await globex.hold([present("w")])
    await worker.hold([present("w0", 0), present("w1", 0)])
    await worker.hold([present("w3")])
    assert [one.name for one in await present_workers(worker)] == ["w2", "w3"]


async def test_a_worker_is_present_for_minutes_at_most(place: Place, opened: Opened) -> None:
    """P15, P19: InvalidInput names the field, for every token."""
    for name in ("worker", "root"):
        store = await opened(place, name)
        with pytest.raises(InvalidInput) as caught:
            await store.hold([present("w", PRESENCE_S_MAX + 1)])
        assert caught.value.field == "length_us"
        await store.hold([present("w", PRESENCE_S_MAX)])


async def test_a_workers_note_is_small(place: Place, opened: Opened) -> None:
    """P15: as it came, and as the service stores it."""
    store = await opened(place, "worker")
    for size in (NOTE_MAX, NOTE_MAX - len(note()) + 20):
        with pytest.raises(InvalidInput) as caught:
            await store.hold([present("w", said=note(types=("t" * size,)))])
        assert caught.value.field == "note"


async def test_a_tenants_list_of_workers_comes_in_pages(place: Place, opened: Opened) -> None:
    """P7, P15: its own and those that serve it too, by name; others' take no place of a page."""
    root, acme, globex = [await opened(place, name) for name in ("root", "acme", "globex")]
    await root.hold([Take(f"{PREFIX}a{n}", f"a{n}", SECOND, note(GLOBEX)) for n in range(20)])
    await root.hold([Take(f"{PREFIX}b{n}", f"b{n}", SECOND, note()) for n in range(3)])
    await acme.hold([present(name) for name in ("b1x", "c")])
    await globex.hold([present(f"b{n}y") for n in range(5)])

    names: list[str] = []
    page = await acme.hold(under=PREFIX, limit=2)
    while page:
        assert len(page) <= 2
        names += [one.name for one in page]
        page = await acme.hold(under=PREFIX, after=names[-1], limit=2)

    assert names == [f"{PREFIX}{name}" for name in ("b0", "b1", "b1x", "b2", "c")]
    assert [one.name for one in await acme.hold(under=f"{PREFIX}b1")] == names[1:3]
    assert await acme.hold(under="tenant-worker/") == []


async def test_slots_come_in_pages_over_the_wire(place: Place, opened: Opened) -> None:
    """P15: also after takes in the same call."""
    acme = await opened(place, "acme")
    scope = queue_of()
    names = [scope.slot(f"s{n}") for n in range(5)]
    listed = await acme.hold(
        [Take(name, "s", SECOND) for name in names], under=scope.slots, after=names[0], limit=2
    )

    assert [one.name for one in listed] == names[1:3]


async def test_a_token_for_some_queues_counts_those_in_pages(place: Place, opened: Opened) -> None:
    """P7, P15: a page of its queues is full, whatever stands between them."""
    root, two = await opened(place, "root"), await opened(place, "two")
    for number in range(8):
        await root.enqueue([job(f"j{number}", queue=f"q{number}")])

    first = await two.count(ACME, limit=1)
    [last] = await two.count(ACME, limit=1, after=(ACME, first[0].queue))

    assert [first[0].queue, last.queue] == ["q2", "q5"]
    assert await two.count(ACME, limit=1, after=(ACME, last.queue)) == []
    assert await two.count(ACME, part="q3") == []


async def test_anothers_nonce_gives_none_of_its_leases(place: Place, opened: Opened) -> None:
    """P7: a claim that is known by its nonce answers only what its caller may claim."""
    root, acme, globex = [await opened(place, name) for name in ("root", "acme", "globex")]
    await root.enqueue([job("a"), job("v", queue=AUDIO), job("g", tenant=GLOBEX)])
    wish = Claim(worker="w", nonce="same", limit=10, lease_us=LEASE)
    assert len(await root.claim(wish)) == 3

    assert ids(await globex.claim(wish)) == ["g"]
    assert sorted(ids(await acme.claim(wish))) == ["a", "v"]
    assert ids(await acme.claim(msgspec.structs.replace(wish, queues=(MAIL,)))) == ["a"]


async def test_a_tenants_token_signs_with_its_own_name(place: Place, opened: Opened) -> None:
    """P14, P19: nobody signs as somebody else."""
    root, acme = await opened(place, "root"), await opened(place, "acme")
    await root.enqueue([job("a"), job("b")])
    await acme.cancel([Ref(ACME, "a")], by=By("root", "wrong address"))
    await root.cancel([Ref(ACME, "b")], by=By("ann", "wrong address"))

    page = await root.events(ACME, 0, PAGE_MAX)
    signed = [event.by for event in page.events if event.kind is EventKind.CANCELED]
    assert signed == ["root (acme): wrong address", "ann: wrong address"]


async def test_a_service_of_another_format_is_not_used(place: Place) -> None:
    """P15: an older one is told from a newer one, and both say what to do."""
    store = place.remote(token="root")
    client = Client(store.options, store._transport(store.options))
    hello = await client.hello()

    class Other:
        def __init__(self, format: int) -> None:
            self.format = format

        async def hello(self) -> wire.Hello:
            return msgspec.structs.replace(hello, format=self.format)

    with pytest.raises(StoreUnsupported, match="one version of holdfast on both sides"):
        await store._greet(Other(1))  # type: ignore[arg-type]
    with pytest.raises(SchemaTooNew):
        await store._greet(Other(wire.FORMAT + 1))  # type: ignore[arg-type]
