"""A program works only on the schema that it was written for, and migrates only when told to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import ConfigError, HoldfastError, SchemaTooNew, SchemaTooOld
from holdfast.core.job import State
from holdfast.core.lifecycle import Transition
from holdfast.store import Act, Claim, Extension, Put, Ref, Take, Watch
from holdfast.stores.postgres.layout import SCHEMA_VERSION
from holdfast.stores.postgres.migrate import EXPECT
from holdfast.stores.postgres.options import parse
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract.builders import ACME, LEASE, changing, finding, job

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres
    from tests.stores.postgres.conftest import Connect

DONE = Transition(tenant=ACME, id="a", token="n.1", to=State.COMPLETED)

VERBS: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "open": lambda store: store.open(),
    "enqueue": lambda store: store.enqueue([job("a", key="k"), job("b")]),
    "claim": lambda store: store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=LEASE)),
    "extend": lambda store: store.extend(
        [Extension(tenant=ACME, id="a", token="n.1", lease_us=SECOND)]
    ),
    "complete": lambda store: store.ack([DONE]),
    "fail": lambda store: store.ack(
        [Transition(tenant=ACME, id="a", token="n.1", to=State.FAILED)]
    ),
    "cancel": lambda store: store.cancel([Ref(ACME, "a")]),
    "change": lambda store: store.change(changing(Act.REPLAY, ids=("a",))),
    "expired": lambda store: store.expired(1),
    "prune": lambda store: store.prune(1, SECOND),
    "find": lambda store: store.find(finding()),
    "count": lambda store: store.count(ACME),
    "recount": lambda store: store.count(ACME, recount=True),
    "explain": lambda store: store.explain(Ref(ACME, "a")),
    "events": lambda store: store.events(ACME, 0, 1),
    "settings": lambda store: store.settings(under="a"),
    "put": lambda store: store.settings([Put("a", b"1", 0)]),
    "hold": lambda store: store.hold([Take("a", "w", SECOND)]),
    "held": lambda store: store.hold(under="a"),
    "wait": lambda store: store.wait(Watch(), 0.1),
    "wait for a job": lambda store: store.wait(Watch(job=Ref(ACME, "a")), 0.1),
}


async def move_to(connect: Connect, version: int) -> None:
    """What a migration by a newer, or a backup of an older, program leaves behind."""
    connection = await connect()
    schema = await connection.fetchval("SELECT current_schema()")
    await connection.execute("DELETE FROM schema_version")
    await connection.execute("INSERT INTO schema_version VALUES ($1)", version)
    text = EXPECT.format(format=f"{version}.other", code="HFVER").replace(
        "holdfast.", f'"{schema}".'
    )
    await connection.execute(text)


@pytest.mark.parametrize(
    ("version", "error"), [(SCHEMA_VERSION + 1, SchemaTooNew), (SCHEMA_VERSION - 1, SchemaTooOld)]
)
async def test_every_verb_stops_at_another_schema(
    store: PostgresStore, connect: Connect, version: int, error: type[HoldfastError]
) -> None:
    """P15: a process that was open when somebody migrated changes nothing, and says why."""
    await move_to(connect, version)

    for verb, call in VERBS.items():
        options = msgspec.structs.replace(store.options, migrate="never")
        with pytest.raises(error) as caught:
            await call(PostgresStore(options) if verb == "open" else store)
        assert caught.value.facts["found"] == version, verb


async def test_an_empty_database_is_not_laid_out_by_who_looks_first(server: Postgres) -> None:
    """P15: open says what to do, migrate does it, and then open works."""
    url = server.fresh("empty").replace("migrate=auto&", "")

    with pytest.raises(SchemaTooOld) as caught:
        await PostgresStore.from_url(url).open()

    assert caught.value.facts["found"] == 0
    assert "holdfast migrate" in str(caught.value)
    assert await PostgresStore.from_url(url).migrate() == SCHEMA_VERSION
    store = PostgresStore.from_url(url)
    await store.open()
    assert (await store.enqueue([job("a")]))[0].created
    await store.close()


async def test_a_wrong_word_for_migrate_is_named() -> None:
    """P15: auto or never."""
    with pytest.raises(ConfigError, match="migrate"):
        parse("postgresql://h/d?migrate=yes")
