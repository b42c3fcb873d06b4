"""Two starts at once of a flow of which an earlier run has left nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Batch
from holdfast.core.capabilities import Capabilities
from holdfast.core.flow import BEGIN, own_id
from holdfast.store import Act, Change, Selection, Store
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME
from holdfast.testing.contract.flowing import Flowing
from holdfast.workflow.run import FlowState

WIDE = 1_500
"""Nodes, more than one call makes."""


class Interleaved:
    """A store after whose first enqueue something else happens."""

    def __init__(self, real: Store, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._real = real
        self._meanwhile: Callable[[], Awaitable[None]] | None = meanwhile

    @property
    def capabilities(self) -> Capabilities:
        return self._real.capabilities

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._real, verb)

    async def enqueue(self, jobs: Any, **options: Any) -> Any:
        answers = await self._real.enqueue(jobs, **options)
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return answers


def wide(at: Flowing) -> Batch:
    batch = Batch("wide", key="k")
    batch.add_many(at.step(str(number)) for number in range(WIDE))
    batch.then(at.step("callback"))
    return batch


async def forget(bench: Bench, *ids: str) -> None:
    """What `prune` does to records that are kept for a shorter time than others."""
    await bench.store.change(Change(select=Selection(tenant=ACME, ids=ids), act=Act.DELETE))


async def test_two_starts_beside_nodes_of_an_earlier_run_make_one_flow(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P12, P17: one of them makes the flow, and it comes to its end."""
    earlier = Flowing(bench)
    run = await earlier.acme.start(wide(earlier))
    await earlier.run()
    await forget(bench, run.id, own_id(run.id, BEGIN))
    other, at = Flowing(bench), Flowing(bench)

    async def meanwhile() -> None:
        await other.acme.start(wide(other))
        await other.run(queues=["holdfast.flows"])

    monkeypatch.setattr(at.mortal, "_real", Interleaved(bench.store, meanwhile))
    run = await at.acme.start(wide(at))
    await at.run()

    status = await run.status()
    assert (status.state, status.left) == (FlowState.COMPLETED, 0)
    assert at.ran.count("callback") + other.ran.count("callback") == 1
