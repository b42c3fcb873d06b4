"""Tokens that somebody made up, on every store that is handed them as they are."""

from __future__ import annotations

import pytest

from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidLeaseToken
from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import decide
from holdfast.dispatch import inner_of
from holdfast.store import Extension
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME

CRAFTED = ("9" * 25, "9" * 5000, "-1", "0", "1e9", "0x1f", str(2**53), str(2**63), str(2**64), "")


@pytest.mark.parametrize("mark", [".", "~."])
@pytest.mark.parametrize("digits", CRAFTED, ids=lambda digits: digits[:25])
async def test_a_crafted_token_is_refused_by_itself(bench: Bench, digits: str, mark: str) -> None:
    """P3, P19: whatever follows the secret part of a true one; the others of its batch go on."""
    if isinstance(inner_of(bench.store), RemoteStore):
        pytest.skip("the service refuses such tokens before its store sees them")
    lease, other = await bench.held("a"), await bench.held("b")
    crafted = lease.token.rpartition(".")[0] + mark + digits
    tokens = (crafted, other.token)

    extended = await bench.store.extend(
        [
            Extension(tenant=ACME, id=one.job.id, token=token, lease_us=90 * SECOND)
            for one, token in zip((lease, other), tokens, strict=True)
        ]
    )
    acked = await bench.store.ack(
        [
            decide(Completed(), one.job, token, 0.0)
            for one, token in zip((lease, other), tokens, strict=True)
        ]
    )

    assert isinstance(extended[0].error, InvalidLeaseToken)
    assert isinstance(acked[0].error, InvalidLeaseToken)
    assert (extended[1].error, acked[1].error) == (None, None)
    assert await bench.state("a") is State.PROCESSING
