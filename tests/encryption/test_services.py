"""Services with and without keys: what they show, take and refuse."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from tests.encryption.vault import ACME, KEYS, SECRET, Door, Tokens, Vault
from tests.servers.service import Host

from holdfast import App, Context, Flow, State
from holdfast.core.bounds import (
    ERROR_BYTES_MAX,
    ERROR_CHARS_MAX,
    LOG_BYTES_MAX,
    PAYLOAD_MAX,
    PROGRESS_CHARS_MAX,
    RESULT_MAX,
    STEP_BYTES_MAX,
)
from holdfast.core.clock import SECOND
from holdfast.core.errors import PayloadTooLarge
from holdfast.core.flow import MAP, QUEUE
from holdfast.core.job import Completed, Envelope, Failed, Reason
from holdfast.core.journal import Entry, EntryKind
from holdfast.core.lifecycle import decide
from holdfast.core.mapped import MARK
from holdfast.dispatch import Dispatcher
from holdfast.encryption import Keys, encrypted
from holdfast.service.rights import Forbidden
from holdfast.store import Claim, Extension
from holdfast.stores.remote import wire
from holdfast.testing import drain
from holdfast.testing.contract.builders import job


async def filled(vault: Vault) -> App:
    """An app that has run a job that completed and one that failed."""
    app, act = vault.app()
    await app.open()
    await app.enqueue(act(SECRET), id="done")
    await app.enqueue(act(f"fail {SECRET}"), id="failed")
    await drain(app)
    return app


# -- what is shown ---------------------------------------------------------------------------------

PATHS = (
    *("/v1/jobs", "/v1/jobs/done", "/v1/jobs/failed", "/v1/jobs/done/result"),
    *("/v1/jobs/done/journal", "/v1/jobs/failed/journal", "/v1/events?limit=100"),
    *("/", "/ui/jobs", "/ui/dead", f"/ui/jobs/{ACME}/done", f"/ui/jobs/{ACME}/failed"),
)


async def test_a_service_with_keys_shows_what_its_rights_allow(vault: Vault) -> None:
    """As a service over a plain store does."""
    app = await filled(vault)
    client = vault.service(KEYS)
    done = (await client.get("/v1/jobs/done")).json
    assert (done["payload"], done["result"], done["codec"]) == ({"text": SECRET}, SECRET, "json")
    failed = (await client.get("/v1/jobs/failed")).json
    assert failed["error"].endswith(f"ValueError: fail {SECRET}")
    journal = (await client.get("/v1/jobs/failed/journal")).json
    assert journal["steps"][0]["value"] == f"fail {SECRET}"
    assert journal["errors"][0]["message"] == f"fail {SECRET}"
    await app.close()


@pytest.mark.parametrize("path", PATHS)
async def test_a_service_without_keys_shows_that_it_is_encrypted(path: str, vault: Vault) -> None:
    """Nothing of it, and no base64 of texts either."""
    app = await filled(vault)
    answer = await vault.service(None).get(path)
    assert answer.status == 200, answer
    assert SECRET.encode() not in answer.body
    assert b"sealed:1:" not in answer.body
    await app.close()


async def test_a_service_without_keys_says_what_is_encrypted(vault: Vault) -> None:
    """The codec of a payload, and a word in the place of a text."""
    app = await filled(vault)
    client = vault.service(None)
    done = (await client.get("/v1/jobs/done")).json
    assert done["codec"] == "encrypted+json"
    assert base64.b64decode(done["payload_base64"]).startswith(MARK)
    failed = (await client.get("/v1/jobs/failed")).json
    assert failed["error"] == "(encrypted)"
    journal = (await client.get("/v1/jobs/failed/journal")).json
    assert journal["log"] == ["(encrypted)"]
    page = (await client.get(f"/ui/jobs/{ACME}/done")).body.decode()
    assert "encrypted: " in page
    await app.close()


async def test_flows_are_listed_without_keys(vault: Vault) -> None:
    """Their structure is readable; the payloads in it are not."""
    app, act = vault.app()
    async with app:
        flow = Flow("order")
        flow.undo(flow.add(act(SECRET)), act(SECRET))
        run = await app.default.start(flow)
        client = vault.service(None)
        [listed] = (await client.get("/v1/flows")).json["flows"]
        assert (listed["name"], listed["total"]) == ("order", 1)
        nodes = (await client.get(f"/v1/flows/{run.id}/nodes")).json
        assert nodes["nodes"][0]["type"] == "act"
        head = await client.get(f"/v1/jobs/{run.id}")
        assert SECRET.encode() not in head.body


async def test_errors_of_flows_are_hidden_without_keys(vault: Vault) -> None:
    """Of the flow, which names those of its nodes, and of each node."""
    app, act = vault.app()
    async with app:
        flow = Flow("order")
        flow.add(act(f"fail {SECRET}"))
        run = await app.default.start(flow)
        await drain(app)
        client = vault.service(None)
        for path in (f"/v1/flows/{run.id}", f"/v1/flows/{run.id}/nodes", f"/ui/flows/{run.id}"):
            answer = await client.get(path)
            assert SECRET.encode() not in answer.body
            assert b"sealed:1:" not in answer.body
        assert (await client.get(f"/v1/flows/{run.id}")).json["error"] == "(encrypted)"
        assert SECRET in str((await run.status()).error)


async def test_payloads_of_schedules_are_hidden_without_keys(vault: Vault) -> None:
    """Their timing is not."""
    app, act = vault.app()
    async with app:
        await app.default.schedule("nightly").set(act(SECRET), every=60)
        for path in ("/v1/schedules", "/v1/schedules/nightly", "/ui/schedules"):
            answer = await vault.service(None).get(path)
            assert answer.status == 200, answer
            assert SECRET.encode() not in answer.body
        found = (await vault.service(KEYS).get("/v1/schedules/nightly")).json
        assert found["payload"] == {"text": SECRET}


# -- work over HTTP --------------------------------------------------------------------------------


async def test_workers_in_other_languages_work_on_a_service_with_keys(vault: Vault) -> None:
    """They see JSON, and the store sees nothing of it."""
    client = vault.service(KEYS)
    await client.post("/v1/jobs", {"type": "act", "payload": {"text": SECRET}, "id": "a"})
    [lease] = (await client.post("/v1/claim", {"limit": 5})).json["leases"]
    assert lease["job"]["payload"] == {"text": SECRET}
    ack = {"id": "a", "token": lease["token"], "outcome": "complete", "result": {"got": SECRET}}
    answer = await client.post("/v1/ack", {"acks": [ack]})
    assert answer.json["acks"][0]["state"] == "completed"
    assert (await client.get("/v1/jobs/a/result")).json["result"] == {"got": SECRET}
    [event] = [each for each in (await vault.plain.events(ACME, 0, 9)).events if each.note]
    assert SECRET not in str(event)


async def test_a_claim_over_http_leaves_out_what_cannot_be_read(
    vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    """It is failed, and the others are given; the log names it without what it carries."""
    client = vault.service(KEYS)
    for id in ("a", "b"):
        await client.post("/v1/jobs", {"type": "act", "payload": {"text": id}, "id": id})
    row = vault.plain._tables.rows[ACME, "a"]  # type: ignore[attr-defined]
    broken = msgspec.structs.replace(row.new.envelope, body=row.new.envelope.body[:-1])
    row.new = msgspec.structs.replace(row.new, envelope=broken)

    with caplog.at_level(logging.WARNING):
        [lease] = (await client.post("/v1/claim", {"limit": 5})).json["leases"]
    assert lease["job"]["id"] == "b"
    failed = (await client.get("/v1/jobs/a")).json
    assert (failed["state"], failed["reason"]) == ("failed", "DECODE")
    assert "was changed after it was encrypted" in failed["error"]
    assert "job a (tenant acme): it cannot be read" in caplog.text


async def test_a_claim_over_http_gives_back_what_waits_for_a_key(vault: Vault) -> None:
    """It costs no attempt."""
    door = Door()
    await vault.service(door).post("/v1/jobs", {"type": "act", "payload": {}, "id": "a"})
    door.open = False
    client = vault.service(door)
    assert (await client.post("/v1/claim", {"limit": 5})).json["leases"] == []
    answer = await client.post("/v1/jobs", {"type": "act", "payload": {}, "id": "b"})
    assert (answer.status, answer.json["code"]) == (503, "KEY_UNAVAILABLE")
    door.open = True
    found = (await vault.service(door).get("/v1/jobs/a")).json
    assert (found["state"], found["attempt"]) == ("scheduled", 0)


async def test_an_erased_tenant_is_refused_over_http(vault: Vault) -> None:
    """By a code of its own."""
    app = await filled(vault)
    await app.store.inner.ring.erase(ACME)  # type: ignore[attr-defined]
    answer = await vault.service(KEYS).post("/v1/jobs", {"type": "act", "payload": {}})
    assert (answer.status, answer.json["code"]) == (409, "KEY_ERASED")
    await app.close()


# -- forged ----------------------------------------------------------------------------------------


async def packed(client: Any, verb: str, value: Any) -> Any:
    path = f"{wire.PATH}/{verb}"
    return await client.post(path, wire.encode(value), content_type=wire.MEDIA)


FORGED = (b"", b"{}", MARK + b"E", MARK + b"E\x01\x01k\x00\x01j" + b"x" * 50)


def forged(codec: str, body: bytes, **changes: Any) -> Any:
    sealed = Envelope(changes.pop("type", "act"), codec, 1, body)
    return msgspec.structs.replace(job("forged"), envelope=sealed, **changes)


@pytest.mark.parametrize("keys", [None, KEYS])
@pytest.mark.parametrize(
    "body", [b"", b"{}", MARK + b"E", MARK + b"E\x01\x01k\x00\x01j" + b"x" * 50]
)
async def test_a_forged_payload_fails_only_itself(body: bytes, keys: Any, vault: Vault) -> None:
    """A token that says that its payload is encrypted hurts no other job."""
    client = vault.service(keys, "anna")
    answer = await packed(client, "enqueue", wire.NewJobs([forged("encrypted+json", body)]))
    assert answer.status == 200, answer
    app, act = vault.app()
    async with app:
        await app.enqueue(act("fine"), id="fine")
        await drain(app)
        found = await app.default.get("forged")
        assert found.state is not State.COMPLETED
        assert (await app.default.get("fine")).state is State.COMPLETED


@pytest.mark.parametrize("codec", ["encrypted+pickle", "encrypted+blob+pickle", "unreadable"])
async def test_a_prefix_does_not_let_a_codec_in(codec: str, vault: Vault) -> None:
    """Pickle runs code; what stands for a payload is none."""
    client = vault.service(None, "anna")
    answer = await packed(client, "enqueue", wire.NewJobs([forged(codec, b"x")]))
    assert answer.status in (403, 422), answer


async def test_an_encrypted_map_is_for_admins_alone(vault: Vault) -> None:
    """It says which codec workers use, and the service cannot look."""
    hidden = forged("encrypted+refs", MARK + b"E", type=MAP, queue=QUEUE)
    answer = await packed(vault.service(None, "anna"), "enqueue", wire.NewJobs([hidden]))
    assert answer.status == 403, answer
    assert Forbidden.code.encode() in answer.body
    answer = await packed(vault.service(None, "root"), "enqueue", wire.NewJobs([hidden]))
    assert answer.status == 200


async def test_wrapped_keys_are_for_admins_of_every_tenant(vault: Vault) -> None:
    """A token of a tenant can neither read nor replace them."""
    app = await filled(vault)
    client = vault.service(None, "anna")
    listed = await packed(client, "settings", wire.Under("holdfast.keys/"))
    assert listed.status == 403
    await app.close()


# -- keys in the client ----------------------------------------------------------------------------


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    host.close()


@pytest.fixture
async def client_side(host: Host) -> AsyncIterator[tuple[App, Any, Any]]:
    """An app with keys on a service that has none."""
    place = host.place("jobs", auth=Tokens())
    remote = place.remote(token="root", tenant=None)
    store = encrypted(Dispatcher(remote), Keys(KEYS, require=True))
    app = App(store, tenant=ACME)

    @app.job
    async def act(ctx: Context, text: str) -> str:
        return text

    async with app:
        yield app, act, place


async def test_a_service_never_sees_what_a_client_encrypts(
    client_side: tuple[App, Any, Any],
) -> None:
    """Its store has what the client sent."""
    app, act, place = client_side
    await app.enqueue(act(SECRET), id="a")
    await drain(app)
    assert await app.default.wait("a", timeout=5) == SECRET
    rows = place.store.inner._tables.rows
    assert rows[ACME, "a"].new.envelope.codec == "encrypted+json"
    assert SECRET.encode() not in rows[ACME, "a"].result


async def test_the_largest_values_pass_through_a_service(
    client_side: tuple[App, Any, Any],
) -> None:
    """Encryption adds to them, and the service allows for it."""
    app, _, _ = client_side
    wish = Claim(worker="w", nonce="n", limit=1, lease_us=60 * SECOND)
    new = job("a", body=b"x" * (PAYLOAD_MAX - 1024))
    [made] = await app.store.enqueue([new])
    assert made.error is None
    [lease] = await app.store.claim(wish)
    entries = (
        Entry(EntryKind.STEP, "s" * 128, b"x" * STEP_BYTES_MAX),
        Entry(EntryKind.LOG, "", b"x" * LOG_BYTES_MAX),
        Entry(EntryKind.ERROR, "1", b"x" * ERROR_BYTES_MAX),
    )
    extension = Extension(
        tenant=ACME,
        id="a",
        token=lease.token,
        lease_us=SECOND,
        progress="\N{GRINNING FACE}" * PROGRESS_CHARS_MAX,
        entries=entries,
    )
    [extended] = await app.store.extend([extension])
    assert extended.error is None
    text = "\N{GRINNING FACE}" * ERROR_CHARS_MAX
    retry = decide(Failed(text, Reason.TIMEOUT), lease.job, lease.token, 0.0)
    [acked] = await app.store.ack([msgspec.structs.replace(retry, delay_us=0)])
    assert acked.error is None
    assert (await app.default.get("a")).error == text

    [lease] = await app.store.claim(msgspec.structs.replace(wish, nonce="n2"))
    done = decide(Completed(b"x" * RESULT_MAX), lease.job, lease.token, 0.0)
    [acked] = await app.store.ack([done])
    assert acked.state is State.COMPLETED


async def test_a_payload_that_would_be_too_large_is_refused_by_the_client(
    client_side: tuple[App, Any, Any],
) -> None:
    """With the size that it may have."""
    app, act, _ = client_side
    with pytest.raises(PayloadTooLarge):
        await app.enqueue(act("x" * PAYLOAD_MAX))
