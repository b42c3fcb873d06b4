"""Where keys come from, and what is refused, without showing a key."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.edge_bounds import KEYS_BYTES_MAX, KEYS_MAX
from holdfast.core.errors import ConfigError, HoldfastError, KeyUnavailable
from holdfast.encryption import Keys, from_environment
from holdfast.encryption.keys import REQUIRE_VARIABLE, VARIABLE
from holdfast.encryption.masters import FileKeys, MasterKeys, WrapperKeys, asked, parsed

SECRET = base64.b64encode(b"s" * 32).decode()
OTHER = base64.b64encode(b"t" * 32).decode()


def test_keys_are_read_from_text() -> None:
    """With commas, or on lines with comments; also base64 for URLs."""
    assert parsed("keys", f"a:{SECRET},b:{OTHER}") == {"a": b"s" * 32, "b": b"t" * 32}
    assert list(parsed("keys", f"# masters\nb:{OTHER}\n\na:{SECRET}\n")) == ["b", "a"]
    odd = base64.urlsafe_b64encode(b"\xfb\xff" * 16).decode()
    assert parsed("keys", f"a:{odd}") == {"a": b"\xfb\xff" * 16}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SECRET, "entry 1 is not of the form ID:BASE64"),
        (f"a:{SECRET},a:{OTHER}", "two keys with the id 'a'"),
        (f":{SECRET}", "the id of a key must not be empty"),
        (f"{'a' * 65}:{SECRET}", "65 characters, at most 64"),
        (f"a b:{SECRET}", "may be ASCII without : , and spaces"),
        ("a:????", "key 'a' is not base64"),
        (f"a:{base64.b64encode(b's' * 16).decode()}", "key 'a' has 16 bytes, must be 32"),
        ("x" * (KEYS_BYTES_MAX + 1), "more than"),
    ],
)
def test_bad_keys_are_refused_without_showing_them(text: str, words: str) -> None:
    """The error names the id."""
    with pytest.raises(ConfigError, match=words) as refused:
        parsed("keys", text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (None, "must be text, a mapping, a callable"),
        (7, "must be text, a mapping, a callable"),
        ({}, "has 0 keys"),
        ({f"k{n}": b"s" * 32 for n in range(KEYS_MAX + 1)}, f"has {KEYS_MAX + 1} keys"),
        ({"a": 7}, "key 'a' must be bytes or base64, not int"),
        ("", "entry"),
        ("env:HOLDFAST_NO_SUCH", "variable HOLDFAST_NO_SUCH is not set"),
        ("file:/nowhere/keys", "the file '/nowhere/keys' cannot be read"),
        ("call:holdfast.nowhere:keys", "must be MODULE:NAME"),
        ("call:", "must be MODULE:NAME"),
        ("call:holdfast:__all__", "must be text, a mapping, a callable"),
    ],
)
def test_a_bad_source_is_refused(source: Any, words: str) -> None:
    """The error says what there is to choose from."""
    with pytest.raises(ConfigError, match=words):
        Keys(source if source != "" else "x")


def test_keys_of_a_callable_are_stored_nowhere() -> None:
    """So they cannot be kept in a store."""
    with pytest.raises(ConfigError, match="a callable keeps its own"):
        Keys(lambda tenant, key_id: None, store=object())  # type: ignore[arg-type]


def test_keys_show_no_secret() -> None:
    """In logs and tracebacks."""
    assert repr(Keys({"a": b"s" * 32})) == "Keys(require=False)"


# -- the environment -------------------------------------------------------------------------------


def test_the_environment_names_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOLDFAST_ENCRYPTION_KEYS, and HOLDFAST_ENCRYPTION_REQUIRE."""
    assert from_environment() is None
    monkeypatch.setenv(VARIABLE, f"a:{SECRET}")
    found = from_environment()
    assert found is not None
    assert not found.require
    monkeypatch.setenv(REQUIRE_VARIABLE, "1")
    found = from_environment()
    assert found is not None
    assert found.require


@pytest.mark.parametrize(
    ("keys", "require", "words"),
    [
        (None, "1", "is not set, and HOLDFAST_ENCRYPTION_REQUIRE needs it"),
        (f"a:{SECRET}", "maybe", "must be 1, on, 0 or off"),
        ("env:OTHER", None, "must not refer to a variable"),
        ("nonsense", None, "not of the form"),
    ],
)
def test_a_bad_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, keys: str | None, require: str | None, words: str
) -> None:
    """Never is something stored in plain form because a variable was mistyped."""
    for name, value in ((VARIABLE, keys), (REQUIRE_VARIABLE, require)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words):
        from_environment()


# -- master keys -----------------------------------------------------------------------------------


async def test_a_wrapped_key_opens_for_its_tenant_alone() -> None:
    """A wrapped key that is copied to another tenant, or changed, is refused."""
    masters = MasterKeys({"new": b"n" * 32, "old": b"o" * 32})
    wrapped = await masters.wrap("acme", "k1", b"d" * 32)
    assert wrapped.master == "new"
    assert await masters.unwrap("acme", "k1", wrapped) == b"d" * 32
    for tenant, id in (("globex", "k1"), ("acme", "k2")):
        with pytest.raises(KeyUnavailable, match="is not the one that wrapped"):
            await masters.unwrap(tenant, id, wrapped)


async def test_a_missing_master_key_is_told() -> None:
    """The jobs wait: the process can be started again with the key."""
    wrapped = await MasterKeys({"new": b"n" * 32}).wrap("acme", "k1", b"d" * 32)
    with pytest.raises(KeyUnavailable, match=r"no master key 'new' \(it has old\)"):
        await MasterKeys({"old": b"o" * 32}).unwrap("acme", "k1", wrapped)


async def test_a_file_is_read_again_for_a_key_that_is_missing(tmp_path: Path) -> None:
    """A master key can be added while processes run."""
    path = tmp_path / "keys"
    path.write_text(f"a:{SECRET}\n")
    keys = FileKeys(path)
    path.write_text(f"b:{OTHER}\na:{SECRET}\n")
    wrapped = await FileKeys(path).wrap("acme", "k1", b"d" * 32)
    assert wrapped.master == "b"
    assert await keys.unwrap("acme", "k1", wrapped) == b"d" * 32
    assert keys.newest == "b"


async def test_a_file_that_was_damaged_makes_jobs_wait(tmp_path: Path) -> None:
    """It does not end the process, and the keys that are known go on."""
    path = tmp_path / "keys"
    path.write_text(f"a:{SECRET}")
    keys = FileKeys(path)
    wrapped = await keys.wrap("acme", "k1", b"d" * 32)
    path.write_text("nonsense")
    assert await keys.unwrap("acme", "k1", wrapped) == b"d" * 32
    other = await MasterKeys({"b": b"t" * 32}).wrap("acme", "k1", b"d" * 32)
    with pytest.raises(KeyUnavailable, match="not of the form"):
        await keys.unwrap("acme", "k1", other)


def test_a_file_that_others_can_read_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning, once."""
    path = tmp_path / "keys"
    path.write_text(f"a:{SECRET}")
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        Keys(f"file:{path}")
    assert "can be read by others" in caplog.text
    path.chmod(0o600)
    caplog.clear()
    Keys(f"file:{path}")
    assert caplog.text == ""


class Service:
    """A key management service that turns bytes around."""

    id = "service-1"

    def wrap(self, secret: bytes, tenant: str) -> bytes:
        return tenant.encode() + secret[::-1]

    async def unwrap(self, wrapped: bytes, tenant: str) -> bytes:
        return wrapped[len(tenant) :][::-1]


async def test_a_key_service_wraps() -> None:
    """By plain methods or coroutines."""
    masters = WrapperKeys(Service())
    wrapped = await masters.wrap("acme", "k1", b"d" * 32)
    assert wrapped.master == "service-1"
    assert await masters.unwrap("acme", "k1", wrapped) == b"d" * 32


@pytest.mark.parametrize("answer", [None, b"", "text", b"x" * 10_000])
async def test_a_key_service_that_answers_nonsense_makes_jobs_wait(answer: object) -> None:
    """It is a mistake of the service, which can be mended."""

    class Broken(Service):
        def wrap(self, secret: bytes, tenant: str) -> Any:
            return answer

        async def unwrap(self, wrapped: bytes, tenant: str) -> Any:
            return answer

    masters = WrapperKeys(Broken())
    with pytest.raises(KeyUnavailable):
        await masters.wrap("acme", "k1", b"d" * 32)
    wrapped = await WrapperKeys(Service()).wrap("acme", "k1", b"d" * 32)
    with pytest.raises(KeyUnavailable):
        await masters.unwrap("acme", "k1", wrapped)


async def test_what_a_provider_raises_can_be_tried_again() -> None:
    """The error says what it raised."""

    def failing() -> None:
        raise OSError("no route to the service")

    with pytest.raises(KeyUnavailable, match="raised OSError: no route to the service"):
        await asked(failing)
    assert issubclass(KeyUnavailable, HoldfastError)
