"""What users sent is bounded in depth, size and time before a page shows it (P19)."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from tests.service.asgi import Client

from holdfast.core.bounds import PAYLOAD_MAX, PROGRESS_CHARS_MAX
from holdfast.core.job import Envelope, NewJob, State
from holdfast.core.lifecycle import Transition
from holdfast.service.app import application
from holdfast.service.pages import dashboard
from holdfast.service.service import Service
from holdfast.store import Claim, Extension
from holdfast.testing.contract import builders
from holdfast.testing.contract.builders import ACME

STALL_S = 0.5
"""Far more than a page takes, far less than it took."""
BODY_MAX = 1_000_000


def nested(depth: int, size: int) -> bytes:
    """So many bytes of lists in lists."""
    one = b"[" * depth + b"]" * depth
    return b"[" + b",".join([one] * (size // (len(one) + 1))) + b"]"


HEAVY = {
    "deep": ("json", nested(800, PAYLOAD_MAX)),
    "as deep as is let in": ("json", nested(127, PAYLOAD_MAX)),
    "wide": ("json", nested(1, PAYLOAD_MAX)),
    "far too deep": ("json", b"[" * 100_000 + b"]" * 100_000),
    "deep msgpack": ("msgpack", b"\x91" * 900 + b"\x90"),
    "wide msgpack": ("msgpack", msgspec.msgpack.encode([{"a": [n]} for n in range(20_000)])),
    "one long text": ("json", b'"' + b"x" * (PAYLOAD_MAX - 2) + b'"'),
    "text": ("bytes", "ü".encode() * (PAYLOAD_MAX // 2)),
    "no text": ("bytes", b"\xff\x00" * (PAYLOAD_MAX // 2)),
    "large": ("json", nested(100, 8 * PAYLOAD_MAX)),
    "a long number": ("json", b"9" * 10_000),
    "nothing": ("json", b""),
}


def heavy(name: str) -> NewJob:
    codec, body = HEAVY[name]
    return msgspec.structs.replace(builders.job("a"), envelope=Envelope("t", codec, 1, body))


class Stall:
    """How long the loop itself was busy with one thing, at most, however busy the machine is."""

    def __init__(self) -> None:
        self.most_s = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.most_s, last = max(self.most_s, now - last), now

    def stop(self) -> float:
        self._task.cancel()
        return self.most_s


@pytest.fixture
def visitor(open_service: Service) -> Client:
    app = application(open_service, mounts=[dashboard], owns_store=False)
    return Client(app, {"holdfast-tenant": ACME})


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("path", [f"/ui/jobs/{ACME}/a", "/v1/jobs/a", "/v1/jobs/a/result"])
async def test_no_payload_or_result_stalls_the_service(
    path: str, name: str, visitor: Client, open_service: Service
) -> None:
    """However it is made, the page is small, and others are served meanwhile."""
    store, body = open_service.store, HEAVY[name][1]
    await store.enqueue([heavy(name)])
    [lease] = await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=10**9))
    done = Transition(tenant=ACME, id="a", token=lease.token, to=State.COMPLETED, result=body)
    await store.ack([done])

    stall = Stall()
    answer = await visitor.get(path)
    stalled_s = stall.stop()

    assert answer.status == 200
    assert stalled_s < STALL_S
    if path.startswith("/ui"):
        assert len(answer.body) < BODY_MAX


async def test_a_claim_of_many_heavy_payloads_stalls_nobody(
    visitor: Client, open_service: Service
) -> None:
    """Each is looked at before it goes out; all of them together take a while."""
    one = heavy("as deep as is let in")
    await open_service.store.enqueue([msgspec.structs.replace(one, id=f"j{n}") for n in range(150)])

    stall = Stall()
    answer = await visitor.post("/v1/claim", {"limit": 150})

    stalled_s = stall.stop()

    assert answer.body.count(b'"token":') == 150
    assert stalled_s < STALL_S


@pytest.mark.parametrize(
    "progress",
    [
        '{"note":"","x":' + "[" * 490 + "]" * 490 + "}",
        "[" * PROGRESS_CHARS_MAX,
        '{"done":1e308,"total":1e-308}',
        '{"done":' + "9" * 1000 + "}",
        '{"done":-1e308,"total":-1}',
    ],
)
async def test_no_progress_breaks_the_page_of_its_job(
    progress: str, visitor: Client, open_service: Service
) -> None:
    """It is text that a worker sent."""
    store = open_service.store
    await store.enqueue([builders.job("a")])
    [lease] = await store.claim(Claim(worker="w", nonce="n", limit=1, lease_us=10**9))
    told = Extension(tenant=ACME, id="a", token=lease.token, lease_us=10**9, progress=progress)
    await store.extend([told])

    answer = await visitor.get(f"/ui/jobs/{ACME}/a")

    assert answer.status == 200, answer
