"""A worker whose first job kills it after its call and before its ack. As a module, such a worker:
`python -m tests.outbound.killed STORE SERVICE MARK`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from holdfast import App, Context
from holdfast.outbound import Outbound
from holdfast.worker import Worker

LEASE_S = 1.0


def _die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def make_app(store: str, service: str, mark: Path) -> App:
    """An app that dies once, where no file has this name yet."""
    app = App(store, lease_s=LEASE_S, poll_s=0.05)
    crm = Outbound(service)

    @app.job(name="create")
    async def create(ctx: Context) -> str:
        answer = await crm.post(ctx, "/contacts", json={"name": "Ann"})
        _die_once(mark)
        found: str = answer.check().json()["id"]
        return found

    return app


if __name__ == "__main__":
    asyncio.run(Worker(make_app(sys.argv[1], sys.argv[2], Path(sys.argv[3]))).run())
