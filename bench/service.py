"""What HTTP costs: `python -m bench.service`. Ratios to the library and to a bare echo, in one run.

echo    single enqueues over 32 connections on memory, of a bare Starlette echo
batch   enqueue, and claim + ack, in batches of 100, of the library on the same store
polls   500 enqueues a second and 50 workers that wait by long polls, for a minute
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import msgspec
from tests.servers.process import free_port
from tests.service.live import serving

from bench.figures import quantile
from bench.requests import Connection, Sent, connect, hammer, request
from holdfast.core.clock import micros
from holdfast.core.job import Completed, Envelope, NewJob, Rules
from holdfast.core.lifecycle import decide
from holdfast.store import Claim, Store
from holdfast.stores import open_store

CONNECTIONS = 32
BATCH = 100
ROUNDS = 3
TENANT = {"holdfast-tenant": "bench"}
PAYLOAD = {"id": 1, "text": "x" * 70, "numbers": [1, 2, 3]}
ECHO = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body(), media_type="application/json")

uvicorn.run(Starlette(routes=[Route("/v1/jobs", echo, methods=["POST"])]), port=int(sys.argv[1]),
            http="httptools", loop="uvloop", access_log=False, log_level="error")
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.service", description=__doc__)
    parser.add_argument("--part", choices=("echo", "batch", "polls"), action="append")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the polls")
    parser.add_argument("--number", type=int, default=20_000, help="of the single enqueues")
    given = parser.parse_args()
    parts = given.part or ["echo", "batch", "polls"]
    if "echo" in parts:
        _echo(given.number)
    if "batch" in parts:
        for store in ("memory://", "sqlite"):
            _batch(store)
    if "polls" in parts:
        asyncio.run(_polls(given.seconds))


# -- singles beside an echo ------------------------------------------------------------------------


def _echo(number: int) -> None:
    body = msgspec.json.encode({"type": "noop", "payload": PAYLOAD})
    sent = request("POST", "/v1/jobs", body, TENANT)
    found: dict[str, list[float]] = {"echo": [], "enqueue": []}
    with _echoing() as echo, serving("memory://") as url:
        port = int(url.rpartition(":")[2])
        for _ in range(ROUNDS):  # In turn: machines have slow minutes.
            for name, at in (("echo", echo), ("enqueue", port)):
                got = asyncio.run(hammer(at, CONNECTIONS, number, lambda _: sent))
                assert got.errors == 0, f"{got.errors} errors of {name}"
                found[name].append(got.per_s)
    echo_s, ours = median(found["echo"]), median(found["enqueue"])
    print(
        f"single enqueues, {CONNECTIONS} connections, memory: {ours:,.0f}/s,"
        f" bare echo {echo_s:,.0f}/s: {verdict(ours / echo_s, 0.6)}"
    )


def verdict(ratio: float, target: float) -> str:
    return f"{ratio:.2f} of it (target {target:.2f}: {'met' if ratio >= target else 'missed'})"


@contextlib.contextmanager
def _echoing() -> Iterator[int]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", ECHO, str(port)])
    try:
        asyncio.run(_until_open(port))
        yield port
    finally:
        process.terminate()
        process.wait(10)


async def _until_open(port: int) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                (await connect(port)).close()
                return
            except OSError:
                await asyncio.sleep(0.05)


# -- batches beside the library --------------------------------------------------------------------


def _batch(store: str, number: int = 20_000) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        ours, theirs = (
            (store, store) if "://" in store else [f"sqlite:///{folder}/{n}.db" for n in "ab"]
        )
        direct = asyncio.run(_library(ours, number))
        with serving(theirs) as url:
            port = int(url.rpartition(":")[2])
            over = asyncio.run(_over_http(port, number))
    for what, mine, library in zip(("enqueue", "claim + ack"), over, direct, strict=True):
        print(
            f"{what} in batches of {BATCH}, {store}: {mine:,.0f} jobs/s over HTTP,"
            f" library {library:,.0f}/s: {verdict(mine / library, 0.5)}"
        )


async def _library(url: str, number: int) -> tuple[float, float]:
    store = open_store(url)
    await store.open()
    try:
        started = time.perf_counter()
        for start in range(0, number, BATCH):
            await store.enqueue([_job(start + each) for each in range(BATCH)])
        middle = time.perf_counter()
        for _ in range(0, number, BATCH):
            await _claim_and_ack(store)
        return number / (middle - started), number / (time.perf_counter() - middle)
    finally:
        await store.close()


def _job(number: int) -> NewJob:
    envelope = Envelope("noop", "json", 1, msgspec.json.encode(PAYLOAD))
    rules = Rules(keep_us=0)
    return NewJob(tenant="bench", id=f"j{number}", queue="default", envelope=envelope, rules=rules)


async def _claim_and_ack(store: Store) -> None:
    claim = Claim(worker="w", nonce=f"{time.perf_counter_ns():032x}", limit=BATCH,
                  lease_us=micros(60), tenants=("bench",))  # fmt: skip
    leases = await store.claim(claim)
    assert len(leases) == BATCH
    await store.ack([decide(Completed(), one.job, one.token, 0.0) for one in leases])


async def _over_http(port: int, number: int) -> tuple[float, float]:
    connection = await connect(port)
    one = {"type": "noop", "payload": PAYLOAD, "keep": 0}
    body = msgspec.json.encode({"jobs": [one] * BATCH})
    enqueue = request("POST", "/v1/jobs/batch", body, TENANT)
    claim = request("POST", "/v1/claim", msgspec.json.encode({"limit": BATCH}), TENANT)
    try:
        started = time.perf_counter()
        for _ in range(0, number, BATCH):
            await _asked(connection, enqueue)
        middle = time.perf_counter()
        for _ in range(0, number, BATCH):
            leases = (await _asked(connection, claim))["leases"]
            assert len(leases) == BATCH
            acks = [
                {"id": lease["job"]["id"], "token": lease["token"], "outcome": "complete"}
                for lease in leases
            ]
            body = msgspec.json.encode({"acks": acks})
            await _asked(connection, request("POST", "/v1/ack", body, TENANT))
        return number / (middle - started), number / (time.perf_counter() - middle)
    finally:
        connection.close()


async def _asked(connection: Connection, sent: bytes) -> Any:
    status, body = await connection.ask(sent)
    assert status < 400, (status, body[:300])
    return msgspec.json.decode(body)


# -- long polls ------------------------------------------------------------------------------------


async def _polls(seconds: float, per_s: int = 500, workers: int = 50) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        serving(f"sqlite:///{folder}/jobs.db") as url,
    ):
        port = int(url.rpartition(":")[2])
        waits, done, sent = await _steady(port, seconds, per_s, workers)
    print(
        f"{per_s} enqueues/s and {workers} long-polling workers for {seconds:g} s, SQLite:"
        f" {sent.answers:,} enqueued, {sent.errors} errors, {done:,} done;"
        f" from enqueue to claim p50 {quantile(waits, 0.5):.1f} ms,"
        f" p99 {quantile(waits, 0.99):.1f} ms (target under 100 ms)"
    )


async def _steady(
    port: int, seconds: float, per_s: int, workers: int
) -> tuple[list[float], int, Sent]:
    sent, stop = Sent(), asyncio.Event()
    waits: list[float] = []

    async def work() -> int:
        connection, done = await connect(port), 0
        claim = request("POST", "/v1/claim", msgspec.json.encode({"wait": 5}), TENANT)
        while not stop.is_set() or len(waits) < sent.answers:
            for lease in (await _asked(connection, claim))["leases"]:
                job = lease["job"]
                waits.append((time.time_ns() - job["payload"]["at"]) / 1e6)
                ack = {"id": job["id"], "token": lease["token"], "outcome": "complete"}
                body = msgspec.json.encode({"acks": [ack]})
                answer = await _asked(connection, request("POST", "/v1/ack", body, TENANT))
                done += answer["acks"][0].get("state") == "completed"
        connection.close()
        return done

    async def produce(number: int) -> None:
        connection, gap = await connect(port), 10 / per_s
        end = time.perf_counter() + seconds
        due = time.perf_counter() + gap * number / 10
        while due < end:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            due += gap
            payload = {"at": time.time_ns()}
            body = msgspec.json.encode({"type": "noop", "payload": payload, "keep": 0})
            status, _ = await connection.ask(request("POST", "/v1/jobs", body, TENANT))
            sent.answers += 1
            sent.errors += status >= 400
        connection.close()

    working = [asyncio.ensure_future(work()) for _ in range(workers)]
    await asyncio.gather(*(produce(number) for number in range(10)))
    stop.set()
    return waits, sum(await asyncio.gather(*working)), sent


if __name__ == "__main__":
    main()
