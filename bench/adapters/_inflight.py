"""Enqueues with a hundred in flight, for every adapter of the harness alike.

The harness has no such measure. Run beside its `run.py`: `python _inflight.py OUT NUMBER NAME...`
starts each one's engine and then itself again in that one's environment, as
`python _inflight.py client NAME NUMBER`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

IN_FLIGHT = 100
CAP_S = 8.0
CLIENT_S_MAX = 60.0


def drive(out: str, number: int, names: list[str]) -> None:
    import engines  # type: ignore[import-not-found,unused-ignore]
    import run  # type: ignore[import-not-found,unused-ignore]

    found: dict[str, Any] = {}
    postgres = None
    try:
        for name in names:
            adapter = run.Adapter(name)
            if adapter.engine == "postgres" and postgres is None:
                postgres = engines.Postgres(run.HOME)
            engine = run.open_engine(adapter.engine, name, postgres)
            bench = run.Bench(adapter, engine, run.HOME)
            try:
                bench.client("setup")
                engine.snapshot()
                engine.reset()
                bench.fresh_maps(number + IN_FLIGHT)
                command = [adapter.python(), os.path.abspath(__file__), "client", name, str(number)]
                done = subprocess.run(
                    command,
                    env=bench.env(),
                    cwd=bench.home,
                    capture_output=True,
                    text=True,
                    timeout=CLIENT_S_MAX,
                    check=True,
                )
                found[name] = json.loads(done.stdout.splitlines()[-1])
            except (subprocess.SubprocessError, RuntimeError, ValueError, IndexError) as error:
                found[name] = {"error": str(error)[:200]}
            finally:
                bench.close()
                engine.stop()
            run.say(f"  {name} in flight {found[name]}")
    finally:
        if postgres is not None:
            postgres.stop()
        with open(out, "w") as file:
            json.dump(found, file)


def client(name: str, number: int) -> dict[str, float]:
    """Callers that each await their own: tasks of a loop, or threads for a client that blocks."""
    adapter = importlib.import_module(f"adapters.{name}")
    if not inspect.iscoroutinefunction(adapter.Client.enqueue):
        return _threads(adapter, number)
    import uvloop  # type: ignore[import-not-found,unused-ignore]

    if getattr(adapter, "UVLOOP", True):
        uvloop.install()
    return asyncio.run(_tasks(adapter, number))


async def _tasks(adapter: Any, number: int) -> dict[str, float]:
    import probe  # type: ignore[import-not-found,unused-ignore]

    one = adapter.Client()
    opening = one.open()
    if inspect.isawaitable(opening):
        await opening
    await one.enqueue(probe.payload(number))  # warms the connection
    numbers, started = iter(range(number)), time.perf_counter()
    done = 0

    async def caller() -> None:
        nonlocal done
        for each in numbers:
            await one.enqueue(probe.payload(each))
            done += 1
            if time.perf_counter() - started > CAP_S:
                return

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return {"per_s": done / (time.perf_counter() - started)}


def _threads(adapter: Any, number: int) -> dict[str, float]:
    import probe  # type: ignore[import-not-found,unused-ignore]

    one = adapter.Client()
    one.open()
    one.enqueue(probe.payload(number))
    numbers, lock, started = iter(range(number)), threading.Lock(), time.perf_counter()
    done, failures = [0] * IN_FLIGHT, []

    def caller(place: int) -> None:
        try:
            while time.perf_counter() - started < CAP_S:
                with lock:
                    each = next(numbers, None)
                if each is None:
                    return
                one.enqueue(probe.payload(each))
                done[place] += 1
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(n,), daemon=True) for n in range(IN_FLIGHT)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CAP_S * 2)
    if failures:
        raise SystemExit(f"not from threads: {failures[0]}")
    return {"per_s": sum(done) / (time.perf_counter() - started)}


if __name__ == "__main__":
    if sys.argv[1] == "client":
        print(json.dumps(client(sys.argv[2], int(sys.argv[3]))), flush=True)
        os._exit(0)  # some clients leave threads behind that would not end
    drive(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
