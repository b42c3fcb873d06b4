"""Behind PgBouncer, which gives out connections by transaction: no session state is needed."""

from __future__ import annotations

import asyncio
import getpass
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.servers.postgres import DATABASE, USER
from tests.servers.process import account, free_port, give, wait_for

from holdfast import App, Context
from holdfast.core.errors import StoreUnavailable
from holdfast.worker import Worker

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")

SETTINGS = """
[databases]
{database} = host=127.0.0.1 port={server} dbname={database}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 3
server_login_retry = 1
logfile = {folder}/pgbouncer.log
pidfile = {folder}/pgbouncer.pid
admin_users = {user}
"""


@pytest.fixture
def pooler(server: Postgres) -> Iterator[str]:
    """The URL of a schema, by way of a pooler with three connections."""
    if PROGRAM is None:
        pytest.skip("no pgbouncer is installed")
    port, user = free_port(), getpass.getuser()
    url = server.fresh("pooled").replace(f":{server.port}/", f":{port}/")
    with tempfile.TemporaryDirectory(prefix="holdfast-pooler-") as place:
        folder = Path(place)
        give(folder)
        words = {"database": DATABASE, "server": server.port, "port": port, "user": user}
        (folder / "pgbouncer.ini").write_text(SETTINGS.format(folder=folder, **words))
        (folder / "users").write_text(f'"{USER}" ""\n')
        process = subprocess.Popen([PROGRAM, "-q", str(folder / "pgbouncer.ini")], **account())
        try:
            wait_for(lambda: _answers(url), "the pooler answers", 20)
            yield f"{url}&prepared=off&notify=off"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url.partition("?")[0], connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


async def test_jobs_run_by_way_of_a_transaction_pooler(pooler: str) -> None:
    """With more callers than connections; polling finds what no notification tells."""
    app = App(pooler, concurrency=20, poll_s=0.1)

    @app.job()
    async def work(ctx: Context, number: int) -> int:
        return number

    async with app:
        tenant = app.tenant("acme")
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        jobs = await asyncio.gather(*(tenant.enqueue(work(number=n)) for n in range(100)))
        results = [await tenant.wait(job.id) for job in jobs]
        worker.stop()
        await working

    assert results == list(range(100))


async def test_a_pooler_without_its_server_is_told_apart(pooler: str, server: Postgres) -> None:
    """The call fails after its time, and goes on when the server is back."""
    app = App(f"{pooler}&retry_s=3")

    @app.job()
    async def work(ctx: Context) -> None: ...

    async with app:
        tenant = app.tenant("acme")
        server.stop()
        with pytest.raises(StoreUnavailable):
            await tenant.enqueue(work(), id="j1")
        server.start()
        assert (await tenant.enqueue(work(), id="j1")).created
