"""A campaign: a service over a real store, an innocent tenant at work, attackers beside it.

The tenant works alone first, which gives its quiet times; then beside the attackers. At the end the
service is stopped and the store is asked what became of the promises.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
from tests.fuzz.attack import Attacker, Report, Side
from tests.fuzz.innocent import Phase
from tests.fuzz.verdict import verdict
from tests.servers.kinds import make
from tests.service.live import serving

from holdfast.service.auth.keys import hash_of, new_key
from holdfast.service.rights import Right

INNOCENT = "innocent"
OWN = tuple(right.value for right in Right if right.value != "platform")
"""What a token of a tenant can have."""
STORES = {"sqlite": None, "postgres": "postgres15", "redis": "redis"}
END_S = 120.0
SLACK_MS = 5.0
"""Quiet times are a few milliseconds, where one turn of the scheduler is a multiple already."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    seconds: float
    quiet_s: float = 20.0
    attackers: int = 4
    rate: float = 100.0
    """Calls of all attackers in a second."""
    schema: bool = True
    """Whether schemathesis attacks too."""
    seed: int = 1


class Found(msgspec.Struct, kw_only=True):
    """What came of a campaign."""

    report: Report
    quiet: Phase
    beside: Phase
    breaches: list[str]

    @property
    def faults(self) -> list[str]:
        """Everything that must not be."""
        return [*self.report.faults, *self.quiet.faults, *self.beside.faults, *self.breaches]

    @property
    def slower(self) -> float:
        """The innocent tenant's p99 beside the attack, as a multiple of its quiet one."""
        return p99(self.beside.times_ms) / max(p99(self.quiet.times_ms), SLACK_MS)


def p99(times_ms: list[float]) -> float:
    ordered = sorted(times_ms)
    return ordered[int(len(ordered) * 0.99)] if ordered else 0.0


async def campaign(plan: Plan, say: Callable[[str], None]) -> Found:
    """Runs it; `say` hears how far it is."""
    secret = secrets.token_hex(16)
    with placed(plan.store) as url, tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        sides, mine = keys(Path(folder, "keys.json"))
        with serving(url, f"--keys={folder}/keys.json") as service:
            async with working(service, mine, secret) as phase:
                say(f"quiet for {plan.quiet_s:.0f} s")
                await phase("quiet")
                await asyncio.sleep(plan.quiet_s)  # nothing else can be waited for
                quiet_over = phase("beside")
                say(f"attacked for {plan.seconds:.0f} s")
                report = await attack(plan, service, sides, secret, say)
                quiet, beside = await quiet_over, await phase("")
        assert quiet is not None
        assert beside is not None
        say("reading what the store says")
        breaches = await verdict(url, INNOCENT)
    return Found(report=report, quiet=quiet, beside=beside, breaches=breaches)


@contextlib.contextmanager
def placed(store: str) -> Iterator[str]:
    """The URL of an empty store of this kind, on a server of its own."""
    kind = STORES[store]
    if kind is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
            yield f"sqlite:///{folder}/jobs.db"
        return
    server = make(kind)
    server.ensure()
    try:
        yield server.lend("fuzz")
    finally:
        server.remove()


def keys(file: Path) -> tuple[list[Side], str]:
    """Writes the service's keys, and gives those of the attackers and that of the innocent tenant.

    One attacker has a token for each way to be limited, and changes its tenant's settings; the
    other may only produce, work and read, so that nothing is ever set for its tenant.
    """
    plain: list[dict[str, object]] = [{"rights": ["produce", "work", "read"]}]
    limited: list[dict[str, object]] = [
        {"rights": list(OWN), "queues": ["q1", "q2"]},
        {"rights": list(OWN), "types": ["send"]},
    ]
    for right in OWN:  # Half may do everything, so that most calls get past the rights.
        limited += [{"rights": [right]}, {"rights": list(OWN)}]
    entries: list[dict[str, object]] = []
    given = {}
    for tenant, tokens in (("evil", limited), ("sly", plain), (INNOCENT, plain)):
        given[tenant] = [new_key() for _ in tokens]
        for key, more in zip(given[tenant], tokens, strict=True):
            name = f"key{len(entries)}"
            entries.append({"name": name, "hash": hash_of(key), "tenant": tenant, **more})
    file.write_text(json.dumps({"keys": entries}))
    sides = [Side(tenant, given[tenant]) for tenant in ("evil", "sly")]
    return sides, given[INNOCENT][0]


Speak = Callable[[str], "asyncio.Future[Phase | None]"]


@contextlib.asynccontextmanager
async def working(url: str, token: str, secret: str) -> AsyncIterator[Speak]:
    """The innocent tenant. Naming a phase begins it, and gives the one before when that is over."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fuzz.innocent", url, token, secret),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=256 * 1024 * 1024,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    first = True

    def speak(name: str) -> asyncio.Future[Phase | None]:
        nonlocal first
        stdin.write(f"{name}\n".encode())
        told, first = not first, False
        return asyncio.ensure_future(_phase() if told else _nothing())

    async def _phase() -> Phase:
        async with asyncio.timeout(END_S):
            return msgspec.json.decode(await stdout.readline(), type=Phase)

    async def _nothing() -> None:
        await stdin.drain()

    try:
        yield speak
    finally:
        stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise


async def attack(
    plan: Plan, url: str, sides: list[Side], secret: str, say: Callable[[str], None]
) -> Report:
    report = Report()
    until = time.monotonic() + plan.seconds
    pause_s = plan.attackers / plan.rate
    async with asyncio.TaskGroup() as group:
        for number in range(plan.attackers):
            seed = plan.seed * 1000 + number
            side = sides[number % len(sides)]
            attacker = Attacker(url, side, report, seed=seed, secret=secret)
            group.create_task(attacker.run(until, pause_s))
        group.create_task(_tell(report, until, say))
        if plan.schema:
            group.create_task(_schema(plan, url, sides[0].tokens[-1], report, until))
    return report


async def _tell(report: Report, until: float, say: Callable[[str], None]) -> None:
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(60, left))  # nothing else can be waited for
        told = ", ".join(f"{status}: {n}" for status, n in sorted(report.statuses.items()))
        left_s = max(0, until - time.monotonic())
        say(f"{left_s:.0f} s left; {told}; {len(report.faults)} faults")


async def _schema(plan: Plan, url: str, token: str, report: Report, until: float) -> None:
    """Schemathesis with ever new seeds, at a tenth of the rate."""
    seed = plan.seed
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        while (left := until - time.monotonic()) > 1:
            process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).parent / "schemathesis"),
                *("run", f"{url}/openapi.json", f"--header=Authorization: Bearer {token}"),
                *(f"--seed={seed}", "--max-examples=50", "--request-timeout=60"),
                *("--exclude-operation-id=follow", "--checks=not_a_server_error"),
                *("--warnings=off", f"--rate-limit={max(1, int(plan.rate / 10))}/s"),
                cwd=folder,
                stdout=asyncio.subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            try:
                async with asyncio.timeout(left):
                    told, _ = await process.communicate()
                if process.returncode != 0:
                    report.faults.append(f"schemathesis --seed={seed}: {told[-2000:].decode()}")
            except TimeoutError:
                process.terminate()
                await process.wait()
            seed += 1
