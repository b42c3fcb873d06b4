"""What the platform set on a tenant: caps, weight, ceilings, pauses. A tenant stays below it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import App
from holdfast.core.ceiling import LIMITED, RESERVED, above, allowed
from holdfast.core.errors import HoldfastError, InvalidInput, PlatformOnly
from holdfast.core.rate import Rate, rate
from holdfast.core.scope import NO_SETTINGS, Ceiling, Pause, Scope, ScopeSettings
from holdfast.scopes import ScopeHandle

TEN = ScopeSettings(max_running=10, ceiling=Ceiling(max_running=10))
FAST = ScopeSettings(rate=rate("10/s"), ceiling=Ceiling(rate=rate("10/s")))
PLATFORM = Pause("overdue", "billing", platform=True)
OWN = Pause("a deploy", "ann")


def changed(before: ScopeSettings, platform: bool = False, **changes: Any) -> ScopeSettings:
    return allowed(before, msgspec.structs.replace(before, **changes), platform=platform)


# -- what is the platform's alone ------------------------------------------------------------------

RESERVED_VALUES: dict[str, Any] = {
    "weight": 9,
    "max_queued": 5,
    "max_bytes": 5,
    "ceiling": Ceiling(max_running=5),
    "tier": "pro",
}


def test_every_reserved_field_is_tried_here() -> None:
    """A field that is added is tried too."""
    assert RESERVED_VALUES.keys() == set(RESERVED)


@pytest.mark.parametrize("field", RESERVED)
def test_a_tenant_neither_sets_nor_lifts_what_is_the_platforms(field: str) -> None:
    """P19: weight, caps and ceilings."""
    had = changed(NO_SETTINGS, True, **{field: RESERVED_VALUES[field]})
    for before, value in (
        (NO_SETTINGS, RESERVED_VALUES[field]),
        (had, getattr(NO_SETTINGS, field)),
    ):
        with pytest.raises(PlatformOnly) as refused:
            changed(before, **{field: value})
        assert refused.value.field == field
        changed(before, True, **{field: value})


def test_a_tenant_that_clears_everything_clears_what_is_its_own() -> None:
    """By taking the settings away, as `put` with no value does."""
    with pytest.raises(PlatformOnly):
        allowed(TEN, NO_SETTINGS, platform=False)
    assert allowed(ScopeSettings(max_running=3), NO_SETTINGS, platform=False) == NO_SETTINGS


# -- ceilings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "field", "high", "low"),
    [
        (TEN, "max_running", 11, 9),
        (FAST, "rate", rate("11/s"), rate("9/s")),
        (FAST, "rate", rate("10/s", 11), rate("10/s", 1)),
        (FAST, "rate", rate("601/m", 10), rate("600/m", 10)),
        (FAST, "rate", rate("36001/h", 10), rate("36000/h", 10)),
    ],
)
def test_a_tenant_sets_its_limit_up_to_the_ceiling(
    before: ScopeSettings, field: str, high: Any, low: Any
) -> None:
    """And not above, in the long run or at once; the error names the ceiling."""
    assert getattr(changed(before, **{field: low}), field) == low
    for platform in (False, True):
        with pytest.raises(InvalidInput, match="above the platform's ceiling of 10"):
            changed(before, platform, **{field: high})


@pytest.mark.parametrize(("before", "field"), [(TEN, "max_running"), (FAST, "rate")])
def test_a_limit_taken_away_is_the_ceiling_again(before: ScopeSettings, field: str) -> None:
    """Never none: stores look at the limit alone."""
    low: Any = {"max_running": 2, "rate": rate("2/s")}[field]
    lower, away = {field: low}, {field: None}

    assert changed(changed(before, False, **lower), False, **away) == before


def test_a_new_ceiling_lowers_the_limit_and_sets_one_where_none_was() -> None:
    """It holds at once."""
    for limit, found in ((50, 10), (3, 3), (None, 10)):
        before = ScopeSettings(max_running=limit)
        assert changed(before, True, ceiling=Ceiling(max_running=10)).max_running == found


def test_a_limit_at_the_ceiling_follows_it() -> None:
    """Up, down and away; one that the tenant set lower stays."""
    for most, found in ((20, 20), (5, 5), (None, None)):
        new = None if most is None else Ceiling(max_running=most)
        assert changed(TEN, True, ceiling=new).max_running == found
    lower = changed(TEN, max_running=3)
    assert changed(lower, True, ceiling=Ceiling(max_running=20)).max_running == 3
    assert changed(lower, True, ceiling=None).max_running == 3


# -- pauses ----------------------------------------------------------------------------------------


def test_a_tenant_does_not_undo_the_platforms_pause() -> None:
    """Neither by a resume nor by a pause of its own over it, nor in somebody's name."""
    before = changed(NO_SETTINGS, True, paused=Pause("overdue", "billing"))
    assert before.paused == PLATFORM

    for paused in (None, OWN, Pause("overdue", "billing"), Pause("overdue", "me", platform=True)):
        with pytest.raises(PlatformOnly, match="overdue"):
            changed(before, paused=paused)
    assert changed(before, max_running=3).paused == PLATFORM
    assert changed(before, True, paused=None).paused is None


def test_a_tenants_pause_is_its_own_whatever_it_says() -> None:
    """And the platform may end it."""
    paused = changed(NO_SETTINGS, paused=Pause("a deploy", "ann", platform=True))

    assert paused.paused == OWN
    assert changed(paused).paused == OWN
    assert changed(paused, paused=None).paused is None
    assert changed(paused, True, paused=None).paused is None


# -- whatever comes after whatever -----------------------------------------------------------------

rates = st.builds(
    Rate,
    count=st.integers(1, 20),
    per_us=st.sampled_from([rate("1/s").per_us, rate("1/m").per_us]),
    burst=st.integers(1, 20),
)
numbers = st.integers(1, 20)
changes = st.fixed_dictionaries(
    {},
    optional={
        "max_running": st.none() | numbers,
        "rate": st.none() | rates,
        "weight": numbers,
        "max_queued": st.none() | numbers,
        "paused": st.none() | st.builds(Pause, st.just("why"), st.just("ann"), st.booleans()),
        "ceiling": st.none()
        | st.builds(Ceiling, max_running=st.none() | numbers, rate=st.none() | rates),
    },
)


@given(st.lists(st.tuples(st.booleans(), changes), max_size=12))
def test_no_order_of_changes_gets_a_limit_above_its_ceiling(
    acts: list[tuple[bool, dict[str, Any]]],
) -> None:
    """P13, P19: what is stored is always at or below, and a tenant's act moves nothing reserved."""
    now = NO_SETTINGS
    for platform, act in acts:
        try:
            after = changed(now, platform, **act)
        except HoldfastError:
            continue
        for field in LIMITED:
            top = None if after.ceiling is None else getattr(after.ceiling, field)
            limit = getattr(after, field)
            assert top is None or (limit is not None and not above(limit, top))
        if not platform:
            assert all(getattr(after, name) == getattr(now, name) for name in RESERVED)
            if now.paused is not None and now.paused.platform:
                assert after.paused == now.paused
        now = after


# -- the handle ------------------------------------------------------------------------------------


async def test_code_in_the_process_acts_for_the_platform() -> None:
    """A handle of the library sets ceilings; one for a tenant stays below them."""
    app = App("memory://")
    async with app:
        await app.tenant("acme").scope().set(ceiling={"max_running": 10, "rate": "5/s"}, weight=3)
        await app.tenant("acme").scope().pause("overdue", "billing")
        mine = ScopeHandle(app.store, Scope("acme"), platform=False)

        assert (await mine.set(max_running=4)).settings.max_running == 4
        assert (await mine.set(max_running=None)).settings.max_running == 10
        for refused in (
            mine.set(max_running=11), mine.set(rate="6/s"), mine.set(weight=4),
            mine.set(ceiling=None), mine.resume("ann"), mine.pause("over it", "ann"),
        ):  # fmt: skip
            with pytest.raises((PlatformOnly, InvalidInput)):
                await refused
        state = await mine.get()

    assert state.settings == ScopeSettings(
        max_running=10,
        rate=rate("5/s"),
        weight=3,
        ceiling=Ceiling(max_running=10, rate=rate("5/s")),
        paused=PLATFORM,
    )


async def test_a_ceiling_is_told_what_is_wrong_with_it_by_name() -> None:
    """As every setting."""
    app = App("memory://")
    async with app:
        scope = app.tenant("acme").queue("mail")
        for said, field in (
            ({"max_runing": 1}, "ceiling.max_runing"),
            ({"max_running": 0}, "ceiling.max_running"),
            ({"burst": 3}, "ceiling.burst"),
            ("10", "ceiling"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await scope.set(ceiling=said)  # type: ignore[arg-type]
            assert refused.value.field == field
