"""What holds a lease's token or a claim's nonce never shows it: logs print values."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.pretty import Pretty

from holdfast.core.clock import SECOND
from holdfast.core.codec import JSON
from holdfast.core.job import Envelope, JobRecord, Lease, Rules, State
from holdfast.core.lifecycle import Transition
from holdfast.service.firecrawl.mapping import Claimed, Key
from holdfast.service.firecrawl.shapes import CompleteIn, JobOut, PoppedOut
from holdfast.service.render import lease_out
from holdfast.service.wire import AckIn, AcksIn, ExtendIn, OutcomeName
from holdfast.store import Claim, Extension, Lapsed

SECRET = "5ecret-5ecret"


def record() -> JobRecord:
    return JobRecord(
        "acme", "one", "mail", Envelope("send", JSON, 1, b"{}"), Rules(), 0, None, None, (), None,
        0, State.PROCESSING, 1, 1, 0, 0, 0, 0, 0,
    )  # fmt: skip


def popped() -> PoppedOut:
    job = JobOut(id="x", data=b"1", priority=0, listenable=False, createdAt=0, teamId="acme")  # type: ignore[call-arg, arg-type, unused-ignore]
    return PoppedOut(job, SECRET)


ACK = AckIn(id="one", token=SECRET, outcome=OutcomeName.COMPLETE)
HOLDERS: dict[str, Any] = {
    "lease": Lease(record(), SECRET, 0),
    "transition": Transition(tenant="acme", id="one", token=SECRET, to=State.COMPLETED),
    "extension": Extension(tenant="acme", id="one", token=SECRET, lease_us=SECOND),
    "lapsed": Lapsed(record(), SECRET, 0),
    "claim": Claim(worker="w", nonce=SECRET, limit=1, lease_us=SECOND),
    "ack on the wire": ACK,
    "acks on the wire": AcksIn(acks=(ACK,)),
    "extension on the wire": ExtendIn(id="one", token=SECRET),
    "lease on the wire": lease_out(Lease(record(), SECRET, 0)),
    "key of a pop": Key("acme", "one", SECRET, "x"),
    "claimed": Claimed("acme", "one", SECRET),
    "complete": CompleteIn(queueKey=SECRET),
    "popped": popped(),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_no_value_shows_its_secret(name: str) -> None:
    """P3: who reads a log or a traceback could settle the job otherwise. By repr, and by rich,
    which tracebacks with local variables use.
    """
    value = HOLDERS[name]
    page = io.StringIO()
    Console(file=page, width=200).print(Pretty(value))

    for shown in (repr(value), str(value), f"{[value]}", page.getvalue()):
        assert SECRET not in shown
    assert type(value).__name__ in repr(value)


def test_what_is_no_secret_is_still_shown() -> None:
    """A value that told nothing would help nobody who looks for a fault."""
    shown = repr(HOLDERS["transition"])

    for part in ("acme", "one", "completed", "<redacted>"):
        assert part in shown
    nobody = Transition(tenant="acme", id="one", token=None, to=State.COMPLETED)
    assert "token=None" in repr(nobody)
