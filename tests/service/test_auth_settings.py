"""How a mode is chosen: the settings, the options of `holdfast serve`, and `holdfast keys new`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.service.minted import AUDIENCE, ISSUER, asked, mint, pem

from holdfast.cli import serve
from holdfast.cli.main import cli
from holdfast.core.errors import ConfigError
from holdfast.service.auth.choice import auth_of
from holdfast.service.auth.keys import Keys, hash_of
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.auth.settings import AuthSettings, Mode
from holdfast.service.auth.tokens import Tokens
from holdfast.service.service import Service

JWT: dict[str, Any] = {
    "jwt_key": "key.pem",
    "jwt_alg": "RS256",
    "jwt_issuer": ISSUER,
    "jwt_audience": (AUDIENCE,),
}


def test_the_mode_follows_from_what_is_given() -> None:
    """Unless it is named."""
    assert AuthSettings.of().auth is Mode.NONE
    assert AuthSettings.of(keys="keys.json").auth is Mode.KEYS
    assert AuthSettings.of(**JWT).auth is Mode.JWT


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"auth": "oauth"}, "auth"),
        ({"auth": "keys"}, "keys"),
        ({"auth": "none", "keys": "keys.json"}, "keys"),
        ({"auth": "none", **JWT}, "jwt_key"),
        ({"auth": "jwt", "keys": "keys.json", **JWT}, "keys"),
        ({"keys": "keys.json", **JWT}, "auth"),
        ({"auth": "jwt"}, "jwt_key"),
        ({**JWT, "jwks": "https://issuer.test/jwks"}, "jwt_key"),
        ({**JWT, "jwt_alg": None}, "jwt_alg"),
        ({**JWT, "jwt_alg": "none"}, "jwt_alg"),
        ({**JWT, "jwt_alg": "RS512"}, "jwt_alg"),
        ({**JWT, "jwt_issuer": None}, "jwt_issuer"),
        ({**JWT, "jwt_audience": ()}, "jwt_audience"),
        ({**JWT, "jwt_audience": ("",)}, "jwt_audience"),
        ({**JWT, "jwt_leeway_s": -1}, "jwt_leeway_s"),
        ({**JWT, "jwt_leeway_s": float("nan")}, "jwt_leeway_s"),
        ({**JWT, "jwt_leeway_s": 86400}, "jwt_leeway_s"),
        ({**JWT, "jwt_leeway_s": "long"}, "jwt_leeway_s"),
        ({**JWT, "tenant_pattern": "["}, "tenant_pattern"),
        ({"jwt_isuer": ISSUER}, "jwt_isuer"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(given: dict[str, Any], field: str) -> None:
    """Nothing is started with half of an authentication."""
    with pytest.raises(ConfigError) as told:
        AuthSettings.of(**given)

    assert told.value.field == field


async def test_the_settings_make_the_mode(tmp_path: Path) -> None:
    """With the files that they name."""
    keys, key = tmp_path / "keys.json", tmp_path / "key.pem"
    keys.write_text("[]")
    key.write_bytes(pem("RS256"))
    auth = auth_of(AuthSettings.of(**{**JWT, "jwt_key": str(key)}))

    assert isinstance(auth_of(AuthSettings.of()), NoAuth)
    assert isinstance(auth_of(AuthSettings.of(keys=str(keys))), Keys)
    assert isinstance(auth, Tokens)
    assert (await asked(auth, mint("RS256"))).status == 200


async def test_the_subject_names_the_tenant_only_where_the_settings_say_so(tmp_path: Path) -> None:
    """P7: else a token that names none is refused."""
    key = tmp_path / "key.pem"
    key.write_bytes(pem("RS256"))
    token = mint("RS256", tid=None)

    for more, status in (({}, 403), ({"jwt_sub_tenant": True}, 200)):
        auth = auth_of(AuthSettings.of(**{**JWT, "jwt_key": str(key), **more}))
        assert (await asked(auth, token)).status == status


# -- holdfast serve --------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collects what `holdfast serve` would run: services, or commands for children."""
    found: list[Any] = []

    async def run(service: Service, bound: Any, **more: Any) -> None:
        bound.close()
        found.append(service)

    class Parent:
        def __init__(self, command: list[str], processes: int, drain_s: float) -> None:
            found.append(command)

        def run(self) -> int:
            return 0

    for name in os.environ:
        if name.startswith("HOLDFAST_"):
            monkeypatch.delenv(name)
    before = dict(os.environ)
    monkeypatch.setattr("holdfast.cli.serving.serve", run)
    monkeypatch.setattr("holdfast.cli.serving.Supervisor", Parent)
    monkeypatch.setattr("holdfast.cli.serving.log_to_stderr", lambda *_, **__: None)
    yield found
    for name in set(os.environ) - set(before):
        del os.environ[name]


def call(*arguments: str, env: dict[str, str] | None = None) -> Any:
    store = () if "--processes=2" in arguments else ("--store", "memory://")
    words = ("serve", "--port=39123", *store, *arguments)
    return CliRunner().invoke(cli, words, env=env, prog_name="holdfast")


def mode(started: list[Any]) -> type:
    [service] = started
    return type(service._auth)


def test_options_and_variables_choose_alike(started: list[Any], tmp_path: Path) -> None:
    """HOLDFAST_ and the option's name."""
    (tmp_path / "keys.json").write_text("[]")
    file = str(tmp_path / "keys.json")
    for arguments, env in (
        (["--keys", file], {}),
        ([], {"HOLDFAST_KEYS": file}),
        (["--auth=keys"], {"HOLDFAST_KEYS": file}),
        ([], {"HOLDFAST_AUTH": "keys", "HOLDFAST_KEYS": file}),
    ):
        assert call(*arguments, env=env).exit_code == 0
        assert mode(started) is Keys
        started.clear()


def test_jwt_can_be_chosen_by_the_environment_alone(started: list[Any], tmp_path: Path) -> None:
    """As containers do."""
    (tmp_path / "key.pem").write_bytes(pem("ES256"))
    env = {
        "HOLDFAST_AUTH": "jwt",
        "HOLDFAST_JWT_KEY": str(tmp_path / "key.pem"),
        "HOLDFAST_JWT_ALG": "ES256",
        "HOLDFAST_JWT_ISSUER": ISSUER,
        "HOLDFAST_JWT_AUDIENCE": "one two",
        "HOLDFAST_JWT_LEEWAY": "5",
        "HOLDFAST_TENANT_PATTERN": "[a-z]+",
    }

    assert call(env=env).exit_code == 0
    assert mode(started) is Tokens
    [service] = started
    assert service._auth._rules.audience == ("one", "two")
    assert service._auth._rules.leeway_s == 5


def test_without_authentication_only_this_machine_is_served(started: list[Any]) -> None:
    """Unless somebody says that he means it."""
    refused = call("--host=0.0.0.0")

    assert (refused.exit_code, started) == (1, [])
    assert "INVALID_CONFIG" in refused.stderr
    assert call("--host=0.0.0.0", "--insecure").exit_code == 0
    [service] = started
    assert service._auth._local_only is False


def test_on_loopback_only_its_own_names_are_served(started: list[Any]) -> None:
    """By default."""
    assert call().exit_code == 0

    [service] = started
    assert service._auth._local_only is True


def test_with_authentication_any_address_is_served(started: list[Any], tmp_path: Path) -> None:
    """That is what it is for."""
    (tmp_path / "keys.json").write_text("[]")

    assert call("--host=0.0.0.0", "--keys", str(tmp_path / "keys.json")).exit_code == 0
    assert mode(started) is Keys


@pytest.mark.parametrize("processes", ["--processes=1", "--processes=2"])
def test_a_wrong_choice_ends_the_command(
    started: list[Any], processes: str, tmp_path: Path
) -> None:
    """Before anything listens, and before a child is started that could only end again."""
    for wrong in (["--auth=keys"], ["--keys", "nowhere.json"], ["--jwks=ftp://x/"]):
        told = call(*wrong, processes, env={"HOLDFAST_STORE": f"sqlite:///{tmp_path / 'x.db'}"})

        assert (told.exit_code, started) == (1, [])
        assert "INVALID_CONFIG" in told.stderr


def test_children_get_it_by_their_environment(started: list[Any], tmp_path: Path) -> None:
    """Everybody on the machine can see arguments."""
    url = "https://user:password@issuer.test/jwks?secret=1"
    told = call(
        "--processes=2",
        f"--jwks={url}",
        f"--jwt-issuer={ISSUER}",
        "--jwt-audience=one",
        "--jwt-audience=two",
        "--jwt-leeway=7",
        "--jwt-sub-tenant",
        "--firecrawl=open",
        env={"HOLDFAST_STORE": f"sqlite:///{tmp_path / 'x.db'}"},
    )

    assert told.exit_code == 0, told.output
    [command] = started
    assert not any("issuer" in word or "password" in word for word in command)
    context = serve.command.make_context("serve", ["--port=39123"], obj=None)
    assert context.params["jwks"] == url
    assert context.params["jwt_audience"] == ("one", "two")
    assert context.params["jwt_leeway"] == 7
    assert context.params["jwt_sub_tenant"] is True
    assert "--firecrawl=open" in command


def test_every_option_has_a_variable() -> None:
    """Whose name can be told from the option's."""
    named = {one.name: one.envvar for one in serve.command.params if isinstance(one, click.Option)}

    for name, _, _ in serve.AUTH_OPTIONS:
        field = name.replace("-", "_")
        assert named[field] == f"HOLDFAST_{field.upper()}"


# -- holdfast keys new -----------------------------------------------------------------------------


def new(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["keys", "new", *arguments], prog_name="holdfast")


async def test_a_new_key_and_its_entry_fit_together(tmp_path: Path) -> None:
    """The entry, put into a file, lets the key in."""
    made = json.loads(new("shop", "--tenant=acme", "--right=read", "--queue=mail", "--json").stdout)
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [made["entry"]]}))

    assert made["entry"] == {
        "name": "shop",
        "hash": hash_of(made["key"]),
        "tenant": "acme",
        "rights": ["read"],
        "queues": ["mail"],
    }
    assert (await asked(Keys(str(file)), made["key"])).status == 200


def test_for_people_the_key_comes_first() -> None:
    """On stdout alone, with its entry after it; what is said about them goes to stderr."""
    told = new("ops", "--tenant=*", "--right=operate", "--right=admin")
    key, entry = told.stdout.splitlines()

    assert json.loads(entry)["hash"] == hash_of(key)
    assert "not shown again" in told.stderr


@pytest.mark.parametrize(
    "wrong",
    [
        ["shop"],
        ["shop", "--tenant=acme"],
        ["shop", "--right=read"],
        ["shop", "--tenant=acme", "--right=everything"],
        ["", "--tenant=acme", "--right=read"],
        ["shop", "--tenant=", "--right=read"],
        ["shop", "--tenant=acme", "--right=read", "--queue= x"],
    ],
)
def test_a_key_for_nothing_in_particular_is_not_made(wrong: list[str]) -> None:
    """Whom it is for and what it may do must be said."""
    told = new(*wrong)

    assert told.exit_code in (1, 2)
    assert "hf_" not in told.stdout
