"""What the scripts cannot handle is refused item by item; the others of its batch go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast.core.bounds import PAGE_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import HoldfastError, InvalidInput, InvalidLeaseToken, JobNotFound
from holdfast.core.job import Completed, State
from holdfast.core.lifecycle import decide
from holdfast.store import Act, Extension, Ref
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.builders import ACME, changing, finding, job, rules

HUGE = [2**53, 2**63, 2**64, 10**400, -(2**53), -(10**400)]


def size(number: int) -> str:
    return f"{'-' if number < 0 else ''}{abs(number).bit_length()} bits"


@pytest.mark.parametrize("number", HUGE, ids=size)
@pytest.mark.parametrize("field", ["run_at", "delay_us", "ttl_us", "priority", "version"])
async def test_a_job_with_a_number_out_of_reach_is_refused_alone(
    bench: Bench, field: str, number: int
) -> None:
    """P15, P19: by the name of the field, singly and beside others."""
    bad = _with(field, number)

    [alone] = await bench.add(bad)
    first, refused, last = await bench.add(job("a"), bad, job("b"))

    for answer in (alone, refused):
        assert isinstance(answer.error, InvalidInput)
        assert answer.error.facts["field"] == field
    assert (first.created, last.created) == (True, True)
    assert len(await bench.claim(10)) == 2


def _with(field: str, number: int) -> Any:
    made = job("bad")
    if field == "version":
        envelope = msgspec.structs.replace(made.envelope, version=number)
        return msgspec.structs.replace(made, envelope=envelope)
    return msgspec.structs.replace(made, **{field: number})


@pytest.mark.parametrize("fields", [{"max_attempts": 2**32}, {"keep_us": 2**60}], ids=str)
async def test_a_job_with_rules_out_of_reach_is_refused_alone(
    bench: Bench, fields: dict[str, int]
) -> None:
    """P19: the rules of one job are its own."""
    refused, kept = await bench.add(job("bad", rules=rules(**fields)), job("a"))

    assert isinstance(refused.error, InvalidInput)
    assert refused.error.facts["field"] in fields
    assert kept.created


@pytest.mark.parametrize("id", ["\ud800", "x" * 40_000])
async def test_a_name_that_is_no_text_is_refused_alone(bench: Bench, id: str) -> None:
    """P7, P19: no job has it, so it is not found; and none can get it."""
    lease = await bench.held("a")
    await bench.put("b")

    refused, kept = await bench.add(job(id), job("c"))
    acked = await bench.store.ack(
        [decide(Completed(), msgspec.structs.replace(lease.job, id=each), lease.token, 0.0)
         for each in (id, "a")]
    )  # fmt: skip
    canceled = await bench.store.cancel([Ref(ACME, id), Ref("\ud800", "b"), Ref(ACME, "b")])

    assert isinstance(refused.error, InvalidInput)
    assert kept.created
    assert isinstance(acked[0].error, JobNotFound)
    assert acked[1].state is State.COMPLETED
    assert [type(each.error) for each in canceled] == [JobNotFound, JobNotFound, type(None)]


@pytest.mark.parametrize("token", ["\ud800.7", "n\0.7", "\0", "~." + "9" * 25, "x" * 100_000])
async def test_a_token_that_is_no_text_is_refused_alone(bench: Bench, token: str) -> None:
    """P3, P19: it is not the token of the job; the others of its batch go on."""
    lease, other = await bench.held("a"), await bench.held("b")
    tokens = (token, other.token)

    extended = await bench.store.extend(
        [
            Extension(tenant=ACME, id=one.job.id, token=each, lease_us=90 * SECOND)
            for one, each in zip((lease, other), tokens, strict=True)
        ]
    )
    acked = await bench.store.ack(
        [
            decide(Completed(), one.job, each, 0.0)
            for one, each in zip((lease, other), tokens, strict=True)
        ]
    )

    assert isinstance(extended[0].error, InvalidLeaseToken)
    assert isinstance(acked[0].error, InvalidLeaseToken)
    assert (extended[1].error, acked[1].error) == (None, None)


@pytest.mark.parametrize("number", HUGE, ids=size)
async def test_a_lease_or_delay_out_of_reach_is_refused_alone(bench: Bench, number: int) -> None:
    """P15, P19: an extension and an ack of others beside it are done."""
    leases = [await bench.held("a"), await bench.held("b")]

    extended = await bench.store.extend(
        [
            Extension(tenant=ACME, id=one.job.id, token=one.token, lease_us=length)
            for one, length in zip(leases, (number, 90 * SECOND), strict=True)
        ]
    )
    late = msgspec.structs.replace(
        decide(Completed(), leases[0].job, leases[0].token, 0.0), to=State.RETRYING, run_at=number
    )
    acked = await bench.store.ack([late, decide(Completed(), leases[1].job, leases[1].token, 0.0)])

    assert _field(extended[0].error) == "lease_us"
    assert _field(acked[0].error) == "run_at"
    assert (extended[1].error, acked[1].state) == (None, State.COMPLETED)
    assert await bench.state("a") is State.PROCESSING


def _field(error: HoldfastError | None) -> object:
    assert isinstance(error, InvalidInput)
    return error.facts["field"]


@pytest.mark.parametrize("number", [2**64, 10**400], ids=size)
async def test_a_cursor_or_time_out_of_reach_is_named(bench: Bench, number: int) -> None:
    """P15: InvalidInput, not an error of the server."""
    asked: list[tuple[Callable[[], Awaitable[object]], str]] = [
        (lambda: bench.store.find(finding(after=number)), "after"),
        (lambda: bench.store.find(finding(created_from=number)), "created_from"),
        (lambda: bench.store.find(finding(failed_before=number)), "failed_before"),
        (lambda: bench.store.events(ACME, number, PAGE_MAX), "after"),
        (lambda: bench.store.change(changing(Act.DELETE, after=number)), "after"),
        (lambda: bench.store.change(changing(Act.RESCHEDULE, run_at=number)), "run_at"),
        (lambda: bench.claim(1, lease_us=number), "lease_us"),
    ]
    for call, field in asked:
        with pytest.raises(InvalidInput) as caught:
            await call()
        assert caught.value.facts["field"] == field
