"""Mode keys: static keys known by their hashes, in a file that is followed."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.service.asgi import Answer
from tests.service.minted import asked, refused, serving

from holdfast.core.errors import ConfigError
from holdfast.service.auth.keys import LOOK_S, Keys, hash_of, new_key

KEY, OTHER = new_key(), new_key()


def entry(key: str = KEY, **more: Any) -> dict[str, Any]:
    usual = {"name": "shop", "hash": hash_of(key), "tenant": "acme", "rights": ["read"]}
    return {**usual, **more}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Holds KEY, for the tenant acme, with the right to read."""
    path = tmp_path / "keys.json"
    write(path, entry())
    return path


def write(path: Path, *entries: dict[str, Any]) -> None:
    rewrite(path, json.dumps({"keys": entries}))


def rewrite(path: Path, text: str | None) -> None:
    """In the manner of a careful operator: the file is replaced, never half written."""
    if text is None:
        path.unlink()
        return
    beside = path.with_suffix(".new")
    beside.write_text(text)
    os.replace(beside, path)


async def test_a_key_is_let_in_by_either_header(file: Path) -> None:
    """As a bearer token, or as X-Api-Key."""
    assert (await asked(Keys(str(file)), KEY)).status == 200
    assert (await asked(Keys(str(file)), None, x_api_key=KEY)).status == 200


def _said(headers: dict[str, str]) -> str:
    """The same in every process of a run: keys are made anew in each."""
    words = "-".join(f"{name}:{value[:100]}" for name, value in headers.items())
    return words.replace(KEY, "KEY").replace(OTHER, "OTHER")[:60]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {KEY}"},
        {"authorization": KEY},
        {"authorization": f"Bearer {OTHER}"},
        {"authorization": f"Bearer {KEY} {KEY}"},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": "Bearer hf_short"},
        {"authorization": "Bearer " + "x" * 20_000},
        {"authorization": "Bearer ü"},
        {"x-api-key": OTHER},
        {"x-api-key": ""},
        {"x-api-key": KEY, "authorization": f"Bearer {KEY}"},
    ],
    ids=lambda headers: _said(headers) or "nothing",
)
async def test_anything_else_is_refused(file: Path, headers: dict[str, str]) -> None:
    """And the answer shows nothing of what was sent."""
    answer = await asked(Keys(str(file)), None, **headers)

    refused(answer, 401)
    assert KEY.encode() not in answer.body
    assert OTHER.encode() not in answer.body


async def test_a_key_in_the_query_is_no_key(file: Path) -> None:
    """Addresses end up in logs."""
    async with serving(Keys(str(file))) as client:
        for name in ("token", "access_token", "api_key", "key"):
            refused(await client.get(f"/v1/queues?{name}={KEY}"), 401)


async def test_the_hash_is_no_key(file: Path) -> None:
    """Whoever reads the file can do nothing with it."""
    refused(await asked(Keys(str(file)), hash_of(KEY).removeprefix("sha256:")), 401)


async def test_a_key_has_the_rights_of_its_entry(file: Path) -> None:
    """And its tenant, whatever the header says."""
    async with serving(Keys(str(file))) as client:
        mine = client.with_headers(authorization=f"Bearer {KEY}")

        refused(await mine.post("/v1/jobs", {"type": "mail"}), 403)
        refused(await mine.get("/v1/queues", holdfast_tenant="other"), 403)


@pytest.mark.parametrize("tenant", [None, "*"])
async def test_a_key_for_every_tenant_names_one_by_header(file: Path, tenant: str | None) -> None:
    """And must."""
    write(file, entry(tenant=tenant))

    assert (await asked(Keys(str(file)), KEY, holdfast_tenant="any")).status == 200
    assert (await asked(Keys(str(file)), KEY)).status == 422


async def test_keys_may_be_for_some_queues_and_types(file: Path) -> None:
    """As the entry says."""
    write(file, entry(rights=["produce"], queues=["mail"], types=["send"]))
    async with serving(Keys(str(file))) as client:
        mine = client.with_headers(authorization=f"Bearer {KEY}")
        jobs = [{"type": "send", "queue": "mail"}, {"type": "send"}, {"type": "x", "queue": "mail"}]

        assert [(await mine.post("/v1/jobs", job)).status for job in jobs] == [201, 403, 403]


async def test_toml_says_the_same(tmp_path: Path) -> None:
    """For those who want comments beside their keys."""
    path = tmp_path / "keys.toml"
    path.write_text(
        f"""
        [[keys]]
        name = "shop"  # Since May.
        hash = "{hash_of(KEY)}"
        tenant = "*"
        rights = ["read"]
        """
    )

    assert (await asked(Keys(str(path)), KEY, holdfast_tenant="any")).status == 200


# -- a file that changes ---------------------------------------------------------------------------


class Followed:
    """A service whose clock is ours."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.auth = Keys(str(path), clock=lambda: self.now)

    async def ask(self, key: str) -> Answer:
        self.now += LOOK_S
        return await asked(self.auth, key)


async def test_a_changed_file_is_read_again(file: Path) -> None:
    """A new key works, one that was taken out does not."""
    followed = Followed(file)
    assert (await followed.ask(KEY)).status == 200

    write(file, entry(OTHER))

    assert (await followed.ask(OTHER)).status == 200
    refused(await followed.ask(KEY), 401)


async def test_the_file_is_not_looked_at_for_every_call(file: Path) -> None:
    """A look a second is enough."""
    followed = Followed(file)
    write(file, entry(OTHER))

    assert (await asked(followed.auth, KEY)).status == 200
    refused(await followed.ask(KEY), 401)


@pytest.mark.parametrize("broken", ["", "{", '{"keys": [{}]}', None], ids=str)
async def test_a_broken_file_keeps_the_keys_and_is_told_once(
    file: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A slip of an operator locks nobody out; the next good file counts."""
    followed = Followed(file)
    rewrite(file, broken)

    with caplog.at_level(logging.ERROR, "holdfast"):
        answers = [await followed.ask(KEY) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert len(caplog.records) == 1

    write(file, entry(OTHER))
    assert (await followed.ask(OTHER)).status == 200


# -- a file that is wrong from the start -----------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ([entry(hash="sha256:abc")], "keys[0].hash"),
        ([entry(hash=KEY)], "keys[0].hash"),
        ([entry(hash=hash_of(KEY).upper())], "keys[0].hash"),
        ([entry(rights=[])], "keys[0].rights"),
        ([entry(queues=[])], "keys[0].queues"),
        ([entry(types=[])], "keys[0].types"),
        ([entry(types=[""])], "keys[0].types"),
        ([entry(tenant="")], "keys[0].tenant"),
        ([entry(name=" x")], "keys[0].name"),
        ([entry(), entry(OTHER)], "keys[1].name"),
        ([entry(), entry(name="b")], "keys[1].hash"),
        ([entry(rights=["everything"])], "keys"),
        ([entry(surprise=1)], "keys"),
        ([{k: v for k, v in entry().items() if k != "tenant"}], "keys"),
    ],
)
def test_a_wrong_entry_is_named(file: Path, entries: list[Any], field: str) -> None:
    """Before the service starts."""
    write(file, *entries)

    with pytest.raises(ConfigError) as told:
        Keys(str(file))

    assert told.value.field == field
    assert KEY not in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(ConfigError, match="nowhere"):
        Keys(str(tmp_path / "nowhere.json"))


def test_new_keys_are_long_and_different() -> None:
    """32 random bytes each, with a prefix by which scanners find them."""
    keys = {new_key() for _ in range(100)}

    assert len(keys) == 100
    assert all(key.startswith("hf_") and len(key) >= 46 for key in keys)
