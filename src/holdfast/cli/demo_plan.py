"""What `holdfast demo` enqueues: each kind of job in turn, with the state it must end in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import msgspec

from holdfast.cli.demo_jobs import (
    ExportBooks,
    await_upload,
    call_partner,
    charge_card,
    charge_stolen_card,
    count_primes,
    resize_photo,
    send_invoice,
    send_mail,
)
from holdfast.typed import Planned


class Fate(Enum):
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELED = "canceled"


class Call(msgspec.Struct, frozen=True):
    """One enqueue of the demo."""

    tenant: str
    job: Planned
    fate: Fate = Fate.COMPLETED
    duplicate: bool = False


Make = Callable[[int], Planned]


def _mail(number: int) -> Planned:
    return send_mail(to=f"user{number}@example.org").with_options(id=f"mail-{number}")


def _urgent(number: int) -> Planned:
    job = send_mail(to=f"vip{number}@example.org")
    return job.with_options(id=f"urgent-{number}", priority=10)


def _later(number: int) -> Planned:
    job = send_mail(to=f"later{number}@example.org")
    return job.with_options(id=f"later-{number}", delay=1.0 + number % 4)


def _never(number: int) -> Planned:
    job = send_mail(to=f"regret{number}@example.org")
    return job.with_options(id=f"regretted-{number}", delay=3600)


def _photo(number: int) -> Planned:
    return resize_photo(photo=number).with_options(id=f"photo-{number}")


def _primes(number: int) -> Planned:
    return count_primes(below=1500).with_options(id=f"primes-{number}")


def _export(number: int) -> Planned:
    return ExportBooks(pages=8).with_options(id=f"export-{number}")


def _partner(number: int) -> Planned:
    return call_partner(order=number).with_options(id=f"partner-{number}")


def _upload(number: int) -> Planned:
    return await_upload(photo=number).with_options(id=f"upload-{number}")


def _invoice(number: int) -> Planned:
    # The delay keeps the job of the first call waiting until the second call.
    return send_invoice(invoice=number).with_options(key=f"invoice-{number}", delay=1.0)


def _declined(number: int) -> Planned:
    return charge_card(invoice=number).with_options(id=f"declined-{number}")


def _stolen(number: int) -> Planned:
    return charge_stolen_card(invoice=number).with_options(id=f"stolen-{number}")


WHEEL: tuple[Make, ...] = (
    *(_mail, _photo, _export, _mail, _partner, _photo, _mail, _upload, _mail, _later),
    *(_mail, _photo, _export, _urgent, _invoice, _photo, _primes, _declined, _mail, _never),
    *(_mail, _photo, _export, _mail, _partner, _photo, _mail, _upload, _urgent, _later),
    *(_mail, _photo, _export, _mail, _invoice, _photo, _primes, _stolen, _mail, _mail),
)
"""One round of 40 jobs. The first half contains every kind but one."""

_FATES: dict[Make, Fate] = {_declined: Fate.DEAD, _stolen: Fate.DEAD, _never: Fate.CANCELED}


def calls(jobs: int, tenants: tuple[str, str]) -> Iterator[Call]:
    """The enqueue calls for this many jobs. Jobs with a key are enqueued twice."""
    for number in range(jobs):
        make = WHEEL[number % len(WHEEL)]
        tenant = tenants[(number + number // len(WHEEL)) % 2]
        call = Call(tenant, make(number), _FATES.get(make, Fate.COMPLETED))
        yield call
        if make is _invoice:
            yield msgspec.structs.replace(call, duplicate=True)
