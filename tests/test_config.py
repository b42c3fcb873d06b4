"""Settings: each wrong one is refused by name, with words that say what is possible."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import App, Config, Context, RetryPolicy
from holdfast.core.errors import ConfigError, UnknownStore
from holdfast.core.retry import Backoff
from holdfast.worker import Worker


def test_the_defaults_are_those_of_the_design() -> None:
    """A page of numbers that users rely on."""
    config = Config.of()

    assert (config.lease_s, config.beat_s, config.concurrency) == (60.0, 20.0, 10)
    assert (config.max_attempts, config.payload_max, config.result_max) == (3, 262144, 65536)
    assert (config.keep_s, config.keep_failed_s, config.drain_s) == (86400.0, 604800.0, 30.0)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("concurency", "concurrency"), ("lease", "lease_s"), ("max_attempt", "max_attempts")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(given: str, meant: str) -> None:
    """A typo must not silently mean the default."""
    with pytest.raises(ConfigError, match=f"{given}.*Did you mean '{meant}'"):
        Config.of(**{given: 1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("concurrency", "10"),
        ("concurrency", True),
        ("concurrency", 1.5),
        ("lease_s", "60"),
        ("queue", 5),
        ("upkeep", "no"),
        ("retry", 3),
        ("codec", None),
    ],
)
def test_a_value_of_the_wrong_type_names_its_field(field: str, value: Any) -> None:
    """And what was expected."""
    with pytest.raises(ConfigError, match="xpected") as raised:
        Config.of(**{field: value})

    assert raised.value.field == field


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("heartbeat_s", {"heartbeat_s": 60.0}),
        ("heartbeat_s", {"heartbeat_s": 5.0, "lease_s": 4.0}),
        ("heartbeat_s", {"heartbeat_s": 0.0}),
        ("retry.cap_s", {"retry": RetryPolicy(base_s=10, cap_s=9)}),
        ("retry.base_s", {"retry": RetryPolicy(base_s=-1)}),
        ("retry.factor", {"retry": RetryPolicy(factor=0.5)}),
        ("retry.delays_s", {"retry": RetryPolicy(kind=Backoff.LIST)}),
        ("retry.delays_s", {"retry": RetryPolicy(kind=Backoff.LIST, delays_s=(-1.0,))}),
        ("retry", {"retry": "brisc"}),
        ("queue", {"queue": ""}),
        ("queue", {"queue": "q" * 129}),
        ("max_attempts", {"max_attempts": 0}),
        ("max_attempts", {"max_attempts": 1001}),
        ("timeout_s", {"timeout_s": 0.0}),
        ("keep_s", {"keep_s": -1.0}),
        ("keep_failed_s", {"keep_failed_s": float("inf")}),
        ("payload_max", {"payload_max": 0}),
        ("result_max", {"result_max": -1}),
        ("concurrency", {"concurrency": 0}),
        ("prefetch", {"prefetch": -1}),
        ("lease_s", {"lease_s": 0.05}),
        ("lease_s", {"lease_s": float("nan")}),
        ("poll_s", {"poll_s": 0.0}),
        ("drain_s", {"drain_s": -0.1}),
        ("unknown_delay_s", {"unknown_delay_s": -1.0}),
        ("leader_s", {"leader_s": 0.1}),
        ("rescue_every_s", {"rescue_every_s": 0.0}),
        ("prune_every_s", {"prune_every_s": 0.0}),
        ("events_keep_s", {"events_keep_s": -1.0}),
    ],
)
def test_an_impossible_value_names_its_field(field: str, settings: dict[str, Any]) -> None:
    """Ranges, and what two settings must be to each other."""
    with pytest.raises(ConfigError) as raised:
        Config.of(**settings)

    assert raised.value.field == field
    assert f"'{field}'" in str(raised.value)


def test_a_preset_that_does_not_exist_hints_at_the_nearest() -> None:
    """Presets are words, and words have typos."""
    with pytest.raises(ConfigError, match="Did you mean 'patient'"):
        Config.of(retry="pacient")


def test_a_worker_may_have_settings_of_its_own() -> None:
    """The rest is the app's; wrong ones are refused like the app's."""
    app = App("memory://", lease_s=9.0)

    assert Worker(app, concurrency=2).config.lease_s == 9.0
    with pytest.raises(ConfigError, match="heartbeat_s"):
        Worker(app, heartbeat_s=9.5)


def test_an_unknown_store_is_named_with_those_that_are_known() -> None:
    """A typo in the URL is the first mistake everybody makes."""
    with pytest.raises(UnknownStore, match="Did you mean 'sqlite'"):
        App("sqlit:///x.db")


@pytest.mark.parametrize("option", ["id", "run_at", "delay", "group", "tags", "ttl"])
def test_what_belongs_to_an_enqueue_is_refused_on_a_type(option: str) -> None:
    """An id or a group of a whole type would be that of all its jobs."""

    def work(ctx: Context) -> None: ...

    with pytest.raises(ConfigError) as raised:
        App("memory://").job(**{option: "x"})(work)  # type: ignore[call-overload]

    assert raised.value.field == option
