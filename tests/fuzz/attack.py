"""One tenant's attackers: spoiled, torn, repeated and reordered calls, with every kind of token."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, deque
from urllib.parse import quote

import aiohttp
import msgspec
from tests.fuzz.templates import FAMILIES, Memory, Request
from tests.fuzz.values import TEXTS, hostile, spoiled, torn

from holdfast.stores.remote.wire import MEDIA

CALL_S = 60.0
"""What no answer may take."""
ANSWER_MAX = 4 * 1024 * 1024
STREAM_BYTES = 4096
REMEMBERED = 200
FAULTS_MAX = 50
HEADERS = ("Holdfast-Tenant", "Last-Event-ID", "X-Request-Id", "Accept", "If-Match", "Content-Type")


class Sent(msgspec.Struct, frozen=True):
    """A call as it goes over the wire, to be sent again or told in a report."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None

    def words(self) -> str:
        told = {name: value[:80] for name, value in self.headers.items() if name != "Authorization"}
        return f"{self.method} {self.path[:300]} {told} {(self.body or b'')[:600]!r}"


class Side(msgspec.Struct, frozen=True):
    """A tenant that attacks, and the tokens it has."""

    tenant: str
    tokens: list[str]


class Report:
    """What the service answered."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.dropped = 0
        """Calls whose connection ended without an answer: bodies and heads over their limits."""
        self.faults: list[str] = []

    def fault(self, sent: Sent, what: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(f"{what}: {sent.words()}")


class Attacker:
    """Sends calls one after the other until its time is over."""

    def __init__(self, url: str, side: Side, report: Report, *, seed: int, secret: str) -> None:
        self._url, self._tokens, self._report = url, side.tokens, report
        self._rng = random.Random(seed)
        self._secret = secret.encode()
        """Stands in each payload of the innocent tenant: no answer to us may show it."""
        self._memory = Memory(side.tenant)
        self._sent: deque[Sent] = deque(maxlen=REMEMBERED)

    async def run(self, until: float, pause_s: float) -> None:
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=True) as session:
            while time.monotonic() < until:
                await self._call(session, self._next())
                await asyncio.sleep(pause_s)  # Its pace: nothing else can be waited for.

    def _next(self) -> Sent:
        rng = self._rng
        if self._sent and rng.random() < 0.15:
            return rng.choice(self._sent)
        sent = self._made(rng.choice(FAMILIES)(rng, self._memory))
        self._sent.append(sent)
        return sent

    def _made(self, call: Request) -> Sent:
        rng = self._rng
        headers = {"Authorization": f"Bearer {rng.choice(self._tokens)}"}
        path, query, value = call.path, call.query, call.body
        honest = rng.random() < 0.35
        if not honest:
            if value is not None:
                value = spoiled(value, rng)
            if rng.random() < 0.2 or value is None:
                query = {**query, rng.choice(list(query) or ["limit"]): hostile(rng)}
            if rng.random() < 0.15:
                parts = path.split("/")
                parts[rng.randrange(1, len(parts))] = rng.choice(TEXTS)[:2000]
                path = "/".join(parts)
            if rng.random() < 0.1:
                name = rng.choice(HEADERS)
                headers[name] = _header(rng.choice(TEXTS))
        body = None if value is None else _encoded(value, packed=call.packed)
        if body is not None:
            headers.setdefault("Content-Type", MEDIA if call.packed else "application/json")
            if not honest and rng.random() < 0.15:
                body = torn(body, rng)
        asked = "&".join(f"{quote(name)}={_quoted(value)}" for name, value in query.items())
        path = quote(path.encode("utf-8", "surrogatepass"), safe="/%")
        return Sent(call.method, f"{path}?{asked}" if asked else path, headers, body)

    async def _call(self, session: aiohttp.ClientSession, sent: Sent) -> None:
        report = self._report
        try:
            async with session.request(
                sent.method, f"{self._url}{sent.path}", headers=sent.headers, data=sent.body
            ) as answer:
                report.statuses[answer.status] += 1
                most = STREAM_BYTES if answer.content_type == "text/event-stream" else ANSWER_MAX
                body = await self._read(answer, most)
        except TimeoutError:
            report.fault(sent, f"no answer within {CALL_S:.0f} s")
            return
        except (aiohttp.ClientError, ValueError):  # Some heads cannot even be sent.
            report.dropped += 1
            return
        if answer.status >= 500:
            report.fault(sent, f"{answer.status} {body[:300]!r}")
        if self._secret in body:
            report.fault(sent, "an answer shows another tenant's payload")
        if answer.content_type == MEDIA:
            self._memory.learn(msgspec.msgpack.decode(body))
        elif answer.content_type.endswith("json"):
            self._learn(sent, body)

    async def _read(self, answer: aiohttp.ClientResponse, most: int) -> bytes:
        """As much as is told; of a stream what comes in a second."""
        if most == ANSWER_MAX:
            return await answer.read()
        try:
            async with asyncio.timeout(1):
                return await answer.content.read(most)
        except TimeoutError:
            return b""

    def _learn(self, sent: Sent, body: bytes) -> None:
        try:
            # Not msgspec: half of a surrogate pair is legal, and goes out as JavaScript sent it.
            self._memory.learn(json.loads(body))
        except (ValueError, RecursionError):
            self._report.fault(sent, f"an answer is no JSON: {body[:300]!r}")


def _header(text: str) -> str:
    """As far as a header can carry it."""
    return "".join(letter for letter in text[:6000] if " " <= letter <= "\x7e") or "x"


def _quoted(value: object) -> str:
    return quote(str(value)[:6000].encode("utf-8", "surrogatepass"))


def _encoded(value: object, *, packed: bool) -> bytes:
    if packed:
        try:
            return msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, UnicodeEncodeError, RecursionError):
            return b"\x93\x01\x02"
    text = json.dumps(value, default=lambda one: one.decode("latin-1"))
    return text.encode("utf-8", "surrogatepass")
