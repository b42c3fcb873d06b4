"""What other processes do to the file in these tests. Run as `children.py NAME PATH [WORD...]`."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from holdfast.core.errors import HoldfastError
from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import Transition, decide
from holdfast.store import Claim, Watch
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.contract.builders import LEASE, job

WAIT_S = 50.0


def say(*words: object) -> None:
    print(*words, flush=True)


async def stream(store: SqliteStore) -> None:
    """Enqueues for ever; says each id once its enqueue has returned."""
    for number in itertools.count():
        await store.enqueue([job(f"s{number}-{part}") for part in range(3)])
        say(f"s{number}")


async def add(store: SqliteStore, *ids: str) -> None:
    """Enqueues these jobs, after a line came in."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    say(*(int(answer.created) for answer in await store.enqueue([job(id) for id in ids])))


async def add_keyed(store: SqliteStore, name: str) -> None:
    """Enqueues jobs of its own ids with keys that its siblings use too; says which were made."""
    answers = [
        (await store.enqueue([job(f"{name}-{number}", key=f"k{number}")]))[0]
        for number in range(50)
    ]
    say(*(answer.id for answer in answers if answer.created))


async def take_all(store: SqliteStore, name: str) -> None:
    """Claims and completes until nothing is left; says which jobs it had."""
    for number in itertools.count():
        claim = Claim(worker=name, nonce=f"{name}-{number}", limit=7, lease_us=LEASE)
        leases = await store.claim(claim)
        if not leases:
            return
        acked = await store.ack(
            [
                Transition(tenant=x.job.tenant, id=x.job.id, token=x.token, to=State.COMPLETED)
                for x in leases
            ]
        )
        assert all(answer.error is None for answer in acked)
        say(*(lease.job.id for lease in leases))


async def run_all(store: SqliteStore, name: str) -> None:
    """Claims and completes for ever, under short leases; says how many were acked each time."""
    for number in itertools.count():
        claim = Claim(worker=name, nonce=f"{name}-{number}", limit=5, lease_us=100_000)
        leases = await store.claim(claim)
        acked = await store.ack([decide(Completed(), x.job, x.token, 0.0) for x in leases])
        say(len(acked))
        if not leases:
            await store.wait(Watch(), 0.1)


async def hold_all(store: SqliteStore, name: str) -> None:
    """Claims what it can, ten times, and never ends it; says which jobs it has."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    had = []
    for number in range(10):
        claim = Claim(worker=name, nonce=f"{name}-{number}", limit=3, lease_us=LEASE)
        had += [lease.job.id for lease in await store.claim(claim)]
    say(*had)
    await asyncio.to_thread(sys.stdin.readline)


async def sleep(store: SqliteStore) -> None:
    """Waits for work and says what it found."""
    say("ready")
    while True:
        await store.wait(Watch(), WAIT_S)
        claim = Claim(worker="sleeper", nonce="nonce", limit=10, lease_us=LEASE)
        if leases := await store.claim(claim):
            say(*(lease.job.id for lease in leases))
            return


async def nothing(store: SqliteStore) -> None:
    """Opens the store and says so."""
    say("open")


async def main(name: str, path: str, *words: str) -> None:
    if name == "nobody":  # As a user who may do nothing here.
        os.setgid(65534)
        os.setuid(65534)
    acts = (stream, add, add_keyed, take_all, run_all, hold_all, sleep, nothing)
    act = {each.__name__: each for each in acts}.get(name, nothing)
    store = SqliteStore.from_url(f"sqlite:///{path}")
    try:
        await store.open()
        await act(store, *words)
    except HoldfastError as error:
        say(error.code, error)
    finally:
        await store.close()


asyncio.run(main(*sys.argv[1:]))
