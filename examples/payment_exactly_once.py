"""A payment whose writes and whose completion commit together, with workers that die in between.

The worker dies twice: before its transaction commits, and right after it. Afterwards each payment
is booked once, whatever happened, and its receipt is sent once.

    python examples/payment_exactly_once.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import App, Context, RetryPolicy, State
from holdfast.effects import exactly_once
from holdfast.worker import Worker

FOLDER = Path(os.environ.get("PAYMENT_FOLDER") or tempfile.mkdtemp())
DATABASE = FOLDER / "jobs.db"
LEFT = (State.ENQUEUED, State.PROCESSING, State.RETRYING)
AT_ONCE = RetryPolicy(base_s=0.0, cap_s=0.0)

app = App(f"sqlite:///{DATABASE}", lease_s=1.0, leader_s=1.0)


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """A connection to the file of the store, which has the tables of the shop too."""
    connection = sqlite3.connect(DATABASE)
    try:
        yield connection
    finally:
        connection.close()


def die_once(moment: str) -> None:
    """Kills this process, the first time that it comes here."""
    mark = FOLDER / moment
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@app.job(retry=AT_ONCE, max_attempts=5)
async def pay(ctx: Context[Any], source: str, target: str, cents: int) -> dict[str, int]:
    with database() as connection:
        async with exactly_once(ctx, connection) as payment:
            book = "UPDATE accounts SET cents = cents + ? WHERE name = ?"
            connection.execute(book, (-cents, source))
            if cents == 500:
                die_once("before the commit")
            connection.execute(book, (cents, target))
            await ctx.enqueue(send_receipt(target, cents), using=connection)
            payment.result = {"cents": cents}
    if cents == 300:
        die_once("after the commit")
    return {"cents": cents}


@app.job(retry=AT_ONCE)
async def send_receipt(ctx: Context[Any], target: str, cents: int) -> None:
    with database() as connection, connection:
        connection.execute("INSERT INTO receipts VALUES (?, ?)", (target, cents))


async def work() -> None:
    """One worker process. It stops when no job is left."""
    worker = Worker(app)
    async with app:
        running = asyncio.create_task(worker.run())
        while jobs := (await shop.find(states=LEFT)).jobs:
            for job in jobs:
                await shop.wait(job.id)
        worker.stop()
        await running


shop = app.tenant("shop")


async def main() -> None:
    async with app:
        with database() as connection, connection:
            connection.execute("CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER)")
            connection.execute("CREATE TABLE receipts (name TEXT, cents INTEGER)")
            connection.execute("INSERT INTO accounts VALUES ('ada', 1000), ('bob', 0)")
        jobs = [await shop.enqueue(pay("ada", "bob", cents)) for cents in (500, 300, 50)]
        deaths = await _run_until_one_ends()
        for job in jobs:
            record = await shop.get(job.id)
            print(f"{record.state.value}: {await job.wait()}")
    with database() as connection:
        print("accounts:", connection.execute("SELECT * FROM accounts").fetchall())
        sent = connection.execute("SELECT cents FROM receipts ORDER BY cents").fetchall()
    print("receipts:", [cents for (cents,) in sent])
    print(f"workers that were killed: {deaths}")


async def _run_until_one_ends() -> int:
    """Starts workers until one stops by itself; returns how many were killed before."""
    environment = {**os.environ, "PAYMENT_FOLDER": str(FOLDER)}
    for deaths in range(10):
        command = (sys.executable, __file__, "worker")
        worker = await asyncio.create_subprocess_exec(*command, env=environment)
        if await worker.wait() == 0:
            return deaths
    raise RuntimeError("the workers die again and again")


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1:] == ["worker"] else main())
