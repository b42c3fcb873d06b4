"""`/v1/platform`: what its routes take and answer. `test_platform_rights` tries who may call it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Client

from holdfast.core.job import EventKind
from holdfast.service.app import application
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.openapi import document
from holdfast.service.routes import ROUTES
from holdfast.service.service import Service
from holdfast.store import Put
from holdfast.stores import open_store

PATHS = ("/v1/platform", "/v1/platform/queues/mail", "/v1/platform/types/send")
each_path = pytest.mark.parametrize("path", PATHS)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    found = Service(open_store("memory://"), NoAuth())
    await found.store.open()
    await found.store.settings([Put("type/send", b'{"queue": "mail"}', 0)])
    yield found
    found.close()
    await found.store.close()


@pytest.fixture
def client(service: Service) -> Client:
    """Names no tenant: these routes are about all of them."""
    return Client(application(service, owns_store=False))


@each_path
async def test_a_limit_over_all_tenants_is_set_read_and_removed(client: Client, path: str) -> None:
    """P13: it holds for the jobs of all tenants together, and the answer counts them."""
    for tenant in ("acme", "globex"):
        job = {"type": "send", "queue": "mail"}
        await client.post("/v1/jobs", job, holdfast_tenant=tenant)
    assert (await client.get(path)).json["version"] == 0

    done = await client.patch(path, {"max_running": 1, "rate": "100/s", "burst": 7})
    assert done.status == 200, done
    assert done.json["settings"]["max_running"] == 1
    assert done.json["settings"]["rate"]["burst"] == 7
    leases = [
        (await client.post("/v1/claim", holdfast_tenant=tenant)).json["leases"]
        for tenant in ("acme", "globex")
    ]

    assert sorted(map(len, leases)) == [0, 1]
    found = (await client.get(path)).json
    assert (found["version"], found["counts"]) == (1, {"processing": 1})
    assert (await client.get(f"{path}/counts")).json["counts"] == {"processing": 1}
    gone = await client.patch(path, {"max_running": None, "rate": None, "expect": 1})
    assert (gone.json["version"], gone.json["settings"]) == (0, {})


@each_path
async def test_all_tenants_are_paused_and_resumed_with_a_name(
    service: Service, client: Client, path: str
) -> None:
    """The author is the caller; each change is an event with the reason."""
    paused = await client.post(f"{path}/pause", {"reason": "the provider is down"})
    assert paused.json["settings"]["paused"]["reason"] == "the provider is down"
    resumed = await client.post(f"{path}/resume", holdfast_reason="it is back")
    assert resumed.json["settings"] == {}

    page = await service.store.events(None, 0, 100)
    told = [one for one in page.events if one.kind is EventKind.CONFIGURED and not one.tenant]
    assert len(told) == 2
    assert "it is back" in (told[1].by or "")


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"max_running": 0}, 422, "max_running"),
    ({"max_running": "many"}, 422, "max_running"),
    ({"rate": "100"}, 422, "rate"),
    ({"rate": "100/y"}, 422, "rate"),
    ({"burst": 5}, 422, "burst"),
    ({"weight": 2}, 422, "weight"),
    ({"slots_count": True}, 422, "slots_count"),
    ({"max_runing": 2}, 422, "max_runing"),
    ({"max_running": 2, "expect": 7}, 409, "version"),
    ({}, 422, "body"),
]


@each_path
@pytest.mark.parametrize(("body", "status", "field"), BAD, ids=str)
async def test_bad_input_of_the_platform_names_its_field(
    client: Client, path: str, body: Any, status: int, field: str
) -> None:
    """P15: and nothing is changed."""
    answer = await client.patch(path, body)

    assert (answer.status, answer.json["field"]) == (status, field), answer
    assert (await client.post(f"{path}/pause", {"reason": ""})).status == 422
    assert (await client.get(path)).json["version"] == 0


async def test_a_type_that_nobody_registered_is_refused_over_http(client: Client) -> None:
    """With the name that was meant; nothing is changed, and reading is harmless."""
    wrong = "/v1/platform/types/sent"
    for method, path, body in (
        ("PATCH", wrong, {"max_running": 1}),
        ("POST", f"{wrong}/pause", {"reason": "x"}),
        ("POST", f"{wrong}/resume", None),
    ):
        answer = await client.call(method, path, body)
        assert (answer.status, answer.json["field"]) == (422, "type"), answer
        assert "Did you mean 'send'" in answer.body.decode()
    assert (await client.get(wrong)).json["version"] == 0


async def test_scopes_of_the_platform_are_listed_page_by_page(client: Client) -> None:
    """The store, queues, types; only those with settings, and none of a tenant."""
    await client.patch("/v1/scopes/queue/mail", {"max_running": 1}, holdfast_tenant="acme")
    assert (await client.get("/v1/platform/scopes")).json == {"scopes": []}
    names = ["/v1/platform", "/v1/platform/queues/a%2Fb", *PATHS[1:]]
    for path in names:
        assert (await client.patch(path, {"max_running": 3})).status == 200

    found, after = [], ""
    while True:
        page = (await client.get(f"/v1/platform/scopes?limit=1{after}")).json
        found += [(one["kind"], one["name"]) for one in page["scopes"]]
        if "cursor" not in page:
            break
        after = f"&after={page['cursor'].replace('/', '%2F')}"

    assert found == [("platform", ""), ("queue", "a/b"), ("queue", "mail"), ("type", "send")]


@each_path
async def test_a_store_without_these_limits_says_so_over_http(
    service: Service, client: Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """501, as for all that a store cannot do."""
    inner: Any = service.store.inner
    less = msgspec.structs.replace(inner.capabilities, platform=False)
    monkeypatch.setattr(inner, "capabilities", less)

    for method, where, body in (
        ("PATCH", path, {"max_running": 1}), ("POST", f"{path}/pause", {"reason": "x"}),
        ("GET", f"{path}/counts", None),
    ):  # fmt: skip
        answer = await client.call(method, where, body)
        assert (answer.status, answer.json["code"]) == (501, "STORE_UNSUPPORTED"), answer


def test_the_document_describes_the_platform() -> None:
    """Which right, which shapes, and the header for the reason; no header for a tenant."""
    paths = document(ROUTES)["paths"]

    for path in ("/v1/platform", "/v1/platform/queues/{queue}", "/v1/platform/types/{type}"):
        assert paths[path].keys() == {"get", "patch"}
        for where, method in (
            (path, "patch"),
            (f"{path}/pause", "post"),
            (f"{path}/resume", "post"),
        ):
            found = paths[where][method]
            assert "the right platform" in found["description"]
            headers = {one["name"] for one in found["parameters"] if one["in"] == "header"}
            assert headers == {"Holdfast-Reason"}
            shape = found["responses"]["200"]["content"]["application/json"]["schema"]
            assert shape["$ref"].endswith("/PlatformOut")
