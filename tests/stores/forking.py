"""A program that uses `app.sync`, forks, and uses it in the child. Run as `forking.py URL`; prints
what each side met as one line of JSON. An alarm ends a child that hangs.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Callable

from holdfast import App, Context, HoldfastError, Job
from holdfast.sync_tenant import SyncTenant

CHILD_S = 20


def an_app() -> tuple[App, Callable[[], Job]]:
    app = App(sys.argv[1])

    @app.job()
    async def work(ctx: Context) -> None: ...

    return app, work


app, work = an_app()
acme = app.sync.tenant("acme")


def enqueue(id: str, tenant: SyncTenant = acme) -> str:
    try:
        return "kept" if tenant.enqueue(work(), id=id).created else "there"
    except HoldfastError as error:
        return f"{type(error).__name__}: {error}"


def in_child(act: Callable[[], str]) -> str:
    """What the act says in a forked child; how the child died when it says nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_S)
        said = act()
        gc.collect()  # The parent's connections may be collected here; it must not notice.
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or f"the child ended with {os.waitstatus_to_exitcode(status)}"


def and_close() -> str:
    said = enqueue("child")
    app.sync.close()
    return said


def by_another() -> str:
    global work
    other, work = an_app()
    return enqueue("other", other.sync.tenant("acme"))


said = {"parent": enqueue("parent"), "child": in_child(and_close), "other": in_child(by_another)}
said["again"] = enqueue("again")
app.sync.close()
said["closed"] = in_child(lambda: enqueue("closed"))
with app.sync:
    said["ids"] = " ".join(sorted(job.id for job in acme.find().jobs))
print(json.dumps(said))
