"""The innocent tenant: works in a process of its own, and measures how long each call takes.

Every job is enqueued, claimed, extended, read and completed; each must come once, at its first
attempt, with the payload that was sent. Told as JSON lines: a phase begins when its name is read
from the standard input, and ends with the next.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import aiohttp
import msgspec

CALL_S = 60.0
PAUSE_S = 0.02


class Phase(msgspec.Struct):
    """What was seen in one phase."""

    name: str
    jobs: int = 0
    times_ms: list[float] = msgspec.field(default_factory=list)
    faults: list[str] = msgspec.field(default_factory=list)


class Innocent:
    def __init__(self, url: str, token: str, secret: str) -> None:
        self._url, self._secret = url, secret
        self._headers = {"Authorization": f"Bearer {token}"}
        self._phase = Phase("start")
        self._number = 0

    async def run(self, names: asyncio.Queue[str]) -> None:
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session:
            while True:
                if not names.empty():
                    name = names.get_nowait()
                    if self._phase.name != "start":
                        print(msgspec.json.encode(self._phase).decode(), flush=True)
                    if not name:
                        return
                    self._phase = Phase(name)
                await self._job(session)
                await asyncio.sleep(PAUSE_S)  # Its pace: nothing else can be waited for.

    async def _job(self, session: aiohttp.ClientSession) -> None:
        self._number += 1
        payload = {"n": self._number, "secret": self._secret}
        made = await self._call(session, "POST", "/v1/jobs", {"type": "calm", "payload": payload})
        if made is None:
            return
        taken = await self._call(session, "POST", "/v1/claim", {"limit": 5, "lease": 60, "wait": 5})
        leases = (taken or {}).get("leases", [])
        ids = [lease["job"]["id"] for lease in leases]
        if ids != [made["id"]]:
            self._phase.faults.append(f"enqueued {made['id']}, was given {ids}")
        for lease in leases:
            await self._finish(session, lease, payload)
        self._phase.jobs += 1

    async def _finish(
        self, session: aiohttp.ClientSession, lease: dict[str, Any], payload: dict[str, Any]
    ) -> None:
        job = lease["job"]
        if job["attempt"] != 1 or job["payload"] != payload:
            self._phase.faults.append(f"{job['id']}: attempt {job['attempt']}, {job['payload']}")
        name = {"id": job["id"], "token": lease["token"]}
        await self._call(session, "POST", "/v1/extend", {"leases": [name]})
        done = await self._call(
            session, "POST", "/v1/ack", {"acks": [{**name, "outcome": "complete", "result": 1}]}
        )
        if done is None or done["acks"][0].get("state") != "completed":
            self._phase.faults.append(f"{job['id']}: the ack was answered by {done}")
        found = await self._call(session, "GET", f"/v1/jobs/{job['id']}")
        if found is None or found["state"] != "completed":
            self._phase.faults.append(f"{job['id']}: is not completed after its ack")

    async def _call(
        self, session: aiohttp.ClientSession, method: str, path: str, body: Any = None
    ) -> dict[str, Any] | None:
        began = time.perf_counter()
        try:
            async with session.request(method, f"{self._url}{path}", json=body) as answer:
                told = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self._phase.faults.append(f"{method} {path}: {error!r}")
            return None
        self._phase.times_ms.append((time.perf_counter() - began) * 1000)
        if answer.status >= 300:
            self._phase.faults.append(f"{method} {path}: {answer.status} {told[:300]!r}")
            return None
        found: dict[str, Any] = msgspec.json.decode(told)
        return found


async def main(url: str, token: str, secret: str) -> None:
    names: asyncio.Queue[str] = asyncio.Queue()
    listening = asyncio.create_task(_listen(names))
    await Innocent(url, token, secret).run(names)
    listening.cancel()


async def _listen(names: asyncio.Queue[str]) -> None:
    """Names come as lines, also several at once if this process was slow to start. The end of the
    input, by the death of who started us, is the last phase too.
    """
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    line = b"\n"
    while line:
        line = await reader.readline()
        names.put_nowait(line.decode().strip())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
