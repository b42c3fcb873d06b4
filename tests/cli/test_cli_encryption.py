"""`holdfast encryption`, and every other command with and without keys in the environment."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.cli.conftest import Run, Shelf
from tests.service.live import serving

M1 = f"m1:{base64.b64encode(b'1' * 32).decode()}"
M2 = f"m2:{base64.b64encode(b'2' * 32).decode()}"
SECRET = "a-word-that-is-secret"


@pytest.fixture
def keyed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the master keys of the environment; none: an empty text."""

    def use(text: str) -> None:
        monkeypatch.setenv("HOLDFAST_ENCRYPTION_KEYS", text)

    use(M1)
    return use


def enqueue(run: Run, tenant: str = "acme") -> str:
    done = run("enqueue", "greet", json.dumps({"name": SECRET}), "--tenant", tenant)
    assert done.exit_code == 0, done.output
    return str(done.stdout.strip())


def test_what_is_enqueued_is_encrypted(run: Run, shelf: Shelf, keyed: Any) -> None:
    """Commands with the keys show it, those without say that it is encrypted."""
    id = enqueue(run)
    assert shelf.get(id).envelope.codec == "encrypted+json"
    assert SECRET in run("job", "show", id).stdout
    keyed("")
    shown = run("job", "show", id)
    assert shown.exit_code == 0
    assert SECRET not in shown.stdout
    assert "<encrypted: " in shown.stdout


def test_a_new_key_can_be_used_at_once(run: Run, keyed: Any) -> None:
    """It is printed in the form of the variable."""
    word = run("encryption", "new-key", "m9").stdout.strip()
    keyed(word)
    enqueue(run)
    [state] = json.loads(run("encryption", "list", "--json").stdout)
    assert state["keys"][0]["master"] == "m9"
    told = json.loads(run("encryption", "new-key", "m9", "--json").stdout)
    assert told["key"].startswith("m9:")
    assert run("encryption", "new-key", "m:9").exit_code == 1


def test_keys_are_listed_without_their_secrets(run: Run, keyed: Any) -> None:
    """Tenant, ids, when they were made, and by which master key they are wrapped."""
    assert run("encryption", "list").stdout == "no keys\n"
    enqueue(run)
    enqueue(run, "globex")
    lines = run("encryption", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["acme", "globex"]
    assert "m1" in lines[-1]


def test_keys_are_rotated_and_wrapped_anew(run: Run, keyed: Any) -> None:
    """Then the old master key is not needed any more, and everything can be read."""
    id = enqueue(run)
    new = run("encryption", "rotate", "--all").stdout.strip()
    keyed(f"{M2},{M1}")
    assert run("encryption", "rewrap").stdout == "1 tenant wrapped anew\n"
    keyed(M2)
    [state] = json.loads(run("encryption", "list", "--json").stdout)
    assert [key["master"] for key in state["keys"]] == ["m2", "m2"]
    assert state["keys"][0]["id"] == new
    assert SECRET in run("job", "show", id).stdout
    run("encryption", "rotate", "acme", "--drop-after", "0s")
    run("encryption", "rotate", "acme", "--drop-after", "0s")
    assert "has no key" in run("job", "show", id).stdout


def test_rotate_needs_tenants_or_all(run: Run, keyed: Any) -> None:
    """Not both."""
    assert run("encryption", "rotate").exit_code == 2
    assert run("encryption", "rotate", "acme", "--all").exit_code == 2


def test_a_tenant_is_erased_for_ever(run: Run, keyed: Any) -> None:
    """After a question; then its jobs cannot be read, and nothing new is taken."""
    id = enqueue(run)
    asked = run("encryption", "erase", "acme", stdin="n\n")
    assert asked.exit_code == 1
    assert run("encryption", "erase", "acme", "--yes").stdout == "erased\n"
    assert run("encryption", "erase", "acme", "--yes").stdout == "was erased before\n"
    assert "were erased" in run("job", "show", id).stdout
    refused = run("enqueue", "greet", "{}", "--tenant", "acme")
    assert (refused.exit_code, "KEY_ERASED" in refused.stderr) == (1, True)
    assert "erased" in run("encryption", "list").stdout
    assert run("encryption", "rotate", "acme").exit_code == 1
    assert run("encryption", "rotate", "acme", "--revive").exit_code == 0
    enqueue(run)


def test_without_keys_there_is_nothing_to_manage(run: Run) -> None:
    """The error says how to give them."""
    refused = run("encryption", "list")
    assert refused.exit_code == 1
    assert "set HOLDFAST_ENCRYPTION_KEYS" in refused.stderr


def test_bad_keys_are_refused_before_anything_is_stored(run: Run, shelf: Shelf, keyed: Any) -> None:
    """A mistyped variable never means that jobs are stored in plain form."""
    keyed("nonsense")
    refused = run("enqueue", "greet", "{}", "--tenant", "acme")
    assert (refused.exit_code, "HOLDFAST" in refused.stderr or "keys" in refused.stderr) == (
        1,
        True,
    )
    assert shelf.all() == []


def test_an_app_without_keys_gets_those_of_the_environment(
    run: Run, shelf: Shelf, keyed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a worker that is started with them encrypts what its jobs return."""
    code = "from holdfast import App, Context\napp = App('memory://')\n"
    code += "@app.job\nasync def greet(ctx: Context, name: str) -> str:\n    return name\n"
    (tmp_path / "unkeyed_shop.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    app = ("--app", "unkeyed_shop:app")
    done = run("enqueue", "greet", '{"name":"Ada"}', "--tenant", "acme", *app)
    assert done.exit_code == 0, done.output
    assert shelf.get(done.stdout.strip()).envelope.codec == "encrypted+json"


def test_a_service_with_keys_gives_plain_jobs(run: Run, shelf: Shelf, keyed: Any) -> None:
    """`holdfast serve` takes them from the environment too."""
    id = enqueue(run)
    with serving(shelf.url, "--auth", "none") as url:
        asked = Request(f"{url}/v1/jobs/{id}", headers={"Holdfast-Tenant": "acme"})
        with urlopen(asked, timeout=10) as answer:
            assert SECRET.encode() in answer.read()
