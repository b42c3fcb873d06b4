"""The jobs of `holdfast demo`, as an application would write them."""

from __future__ import annotations

import asyncio
import time

from holdfast import App, Backoff, Context, Fail, Jitter, Job, RetryPolicy, Snooze

soon = RetryPolicy(kind=Backoff.FIXED, base_s=0.5, jitter=Jitter.NONE)

# The command line replaces this store by the one of its URL.
app = App("memory://", max_attempts=6, retry=soon)


@app.job(queue="mail")
async def send_mail(ctx: Context, to: str) -> None:
    """Short and asynchronous, as most jobs are."""
    await asyncio.sleep(0.3)


@app.job(queue="mail")
async def greet(ctx: Context, name: str) -> str:
    """Returns a greeting at once; fails for the name "nobody"."""
    if name == "nobody":
        raise Fail("no person has this name")
    return f"hello {name}"


@app.job(queue="media")
def resize_photo(ctx: Context, photo: int) -> dict[str, int]:
    """Blocks, so it runs in a thread."""
    time.sleep(0.4)
    return {"photo": photo, "width": 640}


@app.job(queue="reports", cpu=True)
def count_primes(ctx: Context, below: int) -> int:
    """Uses the CPU, so it runs in a process of its own."""
    return sum(all(number % part for part in range(2, number)) for number in range(2, below))


@app.job(queue="reports")
class ExportBooks(Job):
    """Runs for a while and reports progress, so that a killed worker is likely to hold it."""

    pages: int

    async def run(self, ctx: Context) -> dict[str, int]:
        for page in range(self.pages):
            ctx.progress(page, self.pages)
            await asyncio.sleep(0.2)
        return {"pages": self.pages}


@app.job(queue="partners")
async def call_partner(ctx: Context, order: int) -> None:
    """Fails on its early attempts and succeeds later, as a call to an unreliable partner does."""
    if ctx.attempt <= 2:
        raise ConnectionError(f"order {order}: the partner hung up")


@app.job(queue="media")
async def await_upload(ctx: Context, photo: int) -> None:
    """Snoozes on its first run, which costs no attempt."""
    if ctx.job.fence == 1:
        raise Snooze(1.0)


@app.job(queue="billing")
async def send_invoice(ctx: Context, invoice: int) -> None:
    """Enqueued twice with one key, run once."""


@app.job(queue="billing", max_attempts=2)
async def charge_card(ctx: Context, invoice: int) -> None:
    """Always fails; becomes a dead letter after its last attempt."""
    raise PermissionError(f"invoice {invoice}: the card was declined")


@app.job(queue="billing")
async def charge_stolen_card(ctx: Context, invoice: int) -> None:
    """Fails permanently, without a retry."""
    raise Fail(f"invoice {invoice}: the card was reported stolen")
