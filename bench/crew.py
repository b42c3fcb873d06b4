"""The processes of a benchmark, seen from the one that measures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

ANSWER_S_MAX = 900.0
"""No single step takes longer."""
LOOK_S = 0.02
STILL_S_MAX = 30.0
"""A drain in which nothing moves for so long has failed."""
LINE_MAX = 1 << 26


class Failed(Exception):
    """A step of the benchmark gave nothing; says which."""


class Member:
    """One child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, verb: str, **given: Any) -> dict[str, Any]:
        """Has it done, and gives the answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"do": verb, **given}).encode() + b"\n")
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                line = await process.stdout.readline()
        except TimeoutError:
            raise Failed(f"{verb}: no answer within {ANSWER_S_MAX:.0f} s") from None
        if not line:
            raise Failed(f"{verb}: the process ended with {await process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(f"{verb}: {answer['error']}")
        return answer


def member(url: str) -> contextlib.AbstractAsyncContextManager[Member]:
    """A process of this project with this store open."""
    return started([sys.executable, "-m", "bench.child", url])


@contextlib.asynccontextmanager
async def started(command: Sequence[str], **options: Any) -> AsyncIterator[Member]:
    """A process that answers commands. Gone on exit, however that comes about."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_MAX,
        start_new_session=True,  # Ctrl-C is the affair of the one that measures
        **options,
    )
    try:
        yield Member(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def until_ran(
    workers: list[Member], number: int, counted: str = "ran"
) -> list[dict[str, Any]]:
    """What each worker saw once all of them together ran so many, or settled so many."""
    loop = asyncio.get_running_loop()
    most, moved_at = -1, loop.time()
    while True:
        seen = [await worker.do("seen") for worker in workers]
        ran = sum(one[counted] for one in seen)
        if ran >= number:
            return seen
        if ran > most:
            most, moved_at = ran, loop.time()
        if loop.time() - moved_at > STILL_S_MAX:
            raise Failed(f"{ran:,} of {number:,} {counted}, none for {STILL_S_MAX:.0f} s")
        await asyncio.sleep(LOOK_S)
