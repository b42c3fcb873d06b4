"""The default tenant: an app of one tenant need not name it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from click.testing import CliRunner
from tests.service.asgi import Client

from holdfast import App, Context
from holdfast.cli.main import cli
from holdfast.core.errors import ConfigError
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.service import Service
from holdfast.sync import SyncApp
from holdfast.sync_tenant import SyncTenant
from holdfast.tenant import Tenant
from holdfast.testing import drain


def an_app(**settings: Any) -> tuple[App, Any]:
    app = App("memory://", **settings)

    @app.job()
    async def double(ctx: Context, n: int) -> int:
        return n * 2

    return app, double


async def test_an_app_has_the_calls_of_its_default_tenant() -> None:
    """The same jobs as by `app.tenant("main")`."""
    app, double = an_app(tenant="main")
    async with app:
        job = await app.enqueue(double(n=2), key="k")
        await drain(app)

        assert await app.wait(job) == await app.wait(job.id) == 4
        assert (await app.get(job.id)).tenant == "main"
        assert len((await app.tenant("main").find()).jobs) == 1


def test_blocking_code_has_it_too() -> None:
    """As `app.sync.enqueue`."""
    app, double = an_app(tenant="main")
    with app.sync as sync:
        job = sync.enqueue(double(n=2))

        assert sync.get(job.id).tenant == "main"
        assert sync.cancel(job.id)


@pytest.mark.parametrize(("kind", "handle"), [(App, Tenant), (SyncApp, SyncTenant)])
def test_every_call_of_a_tenant_is_one_of_the_app(kind: type, handle: type) -> None:
    """A new call of a tenant is not forgotten."""
    own = [name for name, _ in inspect.getmembers(handle, callable) if not name.startswith("_")]

    assert [name for name in own if not hasattr(kind, name)] == []


async def test_an_app_without_one_says_how_to_set_it() -> None:
    """Instead of guessing."""
    app, double = an_app()
    async with app:
        how = "App\\(url, tenant='main'\\)"
        with pytest.raises(ConfigError, match=how):
            await app.enqueue(double(n=1))
        with pytest.raises(ConfigError, match=how):
            await app.wait("x")
        with pytest.raises(ConfigError, match=how):
            app.scope()


@pytest.mark.parametrize("name", ["", " padded", "x" * 129])
def test_a_bad_default_is_refused_by_its_name(name: str) -> None:
    """When the app is made, not at the first call."""
    with pytest.raises(ConfigError, match="tenant"):
        App("memory://", tenant=name)


async def test_the_service_takes_it_where_the_caller_names_none() -> None:
    """A header and a token of one tenant count first."""
    app, _ = an_app(tenant="main")
    service = Service(app.store, NoAuth(), config=app.config)
    await service.store.open()
    client = Client(application(service, owns_store=False))

    for named, tenant in ((client, "main"), (client.with_headers(holdfast_tenant="acme"), "acme")):
        made = await named.post("/v1/jobs", {"type": "t", "payload": {}})
        assert made.status == 201
        assert len((await app.tenant(tenant).find()).jobs) == 1
    service.close()
    await service.store.close()


SHOP = "from holdfast import App\napp = App('sqlite:///jobs.db', tenant='main')\n"


def test_commands_take_that_of_the_app(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And refuse to guess without one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_shop.py").write_text(f"{SHOP}\n@app.job()\ndef t(ctx):\n    pass\n")
    made = CliRunner().invoke(cli, ["enqueue", "t", "--app", "own_shop:app", "--json"])

    assert '"tenant": "main"' in made.output, made.output
    assert "Missing option '--tenant'" in CliRunner().invoke(cli, ["enqueue", "t"]).output
