"""The pure rules of scopes: names, what may be set where, whose settings win."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bounds import GROUP_MAX, NAME_MAX, RUNNING_CAP_MAX, WEIGHT_MAX
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput
from holdfast.core.rate import Rate, rate
from holdfast.core.scope import (
    NO_SETTINGS,
    PLATFORM,
    PREFIX,
    GroupRules,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
    decode,
    encode,
    group_settings,
    rounds,
    scope_of,
    slot_scope_of,
)

START = 1_767_225_600_000_000
MINUTE = 60 * SECOND

words = st.text(
    st.characters(exclude_categories=("C", "Z")) | st.sampled_from("/:0123456789"),
    min_size=1,
    max_size=60,
).filter(lambda text: text.isprintable() and text == text.strip())
scopes = st.one_of(
    st.builds(Scope, words),
    st.builds(Scope, words, st.just(ScopeKind.QUEUE), words),
    st.builds(Scope, words, st.just(ScopeKind.GROUP), words),
)


# -- names -----------------------------------------------------------------------------------------


@given(scopes)
def test_a_name_leads_back_to_its_scope(scope: Scope) -> None:
    """P7: slashes, colons, digits and every script included."""
    assert scope_of(scope.name) == scope


@given(scopes, words)
def test_the_name_of_a_slot_leads_back_to_its_scope(scope: Scope, id: str) -> None:
    """P13: whatever the outsider calls itself."""
    assert slot_scope_of(scope.slot(id)) == scope
    assert scope.slot(id).removeprefix(scope.slots) == id


@given(st.lists(scopes, min_size=2, max_size=2, unique=True), words, words)
def test_no_two_scopes_share_a_name(pair: list[Scope], one: str, two: str) -> None:
    """P7: nor does a slot of one stand under the other."""
    first, second = pair
    assert first.name != second.name
    assert first.slot(one) != second.slot(two)
    assert not first.slot(one).startswith(second.slots)


def test_the_longest_names_fit() -> None:
    """P15: what the limits allow can be stored."""
    scope = Scope("t" * 128, ScopeKind.GROUP, "g" * GROUP_MAX).checked()
    assert len(scope.name) <= NAME_MAX
    assert len(scope.slot("s" * 128)) <= NAME_MAX


@pytest.mark.parametrize("name", ["", "queue/a", "scopes/tenant/4:acme/", "slot/x", "worker/1"])
def test_other_names_are_no_scopes(name: str) -> None:
    """P15: settings that are not of a scope are left alone."""
    assert scope_of(name) is None


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "world/4:acme/",
        "tenant/acme/",
        "tenant/:acme/",
        "tenant/-4:acme/",
        "tenant/4:acme",
        "tenant/5:acme/",
        "tenant/3:acme/",
        "tenant/04:acme/",
        "tenant/4:acme/x",
        "tenant/0:/",
        "queue/4:acme/",
        "group/4:acme/" + "g" * (GROUP_MAX + 1),
        "group/4:acme/ padded",
    ],
)
def test_a_name_of_no_scope_is_refused(rest: str) -> None:
    """P15: never taken for another scope."""
    with pytest.raises(InvalidInput):
        scope_of(PREFIX + rest)


@pytest.mark.parametrize(
    "name", ["slot/", "slot/tenant/4:acme/", "slot/tenant/4:acme/x:/s", "slot/queue/4:acme/9:a/s"]
)
def test_a_slot_of_no_scope_has_no_name(name: str) -> None:
    """P15: a clear error, no other one."""
    with pytest.raises(InvalidInput):
        slot_scope_of(name)


# -- settings --------------------------------------------------------------------------------------

SCOPE = {
    "tenant": Scope("acme"),
    "queue": Scope("acme", ScopeKind.QUEUE, "mail"),
    "group": Scope("acme", ScopeKind.GROUP, "crawl"),
}
OVER_ALL = (PLATFORM, Scope("", ScopeKind.QUEUE, "mail"), Scope("", ScopeKind.TYPE, "send"))


@pytest.mark.parametrize(
    ("field", "value", "owner"),
    [
        ("weight", 2, "tenant"),
        ("max_queued", 2, "tenant"),
        ("max_bytes", 2, "tenant"),
        ("ordered", True, "group"),
        ("ordered", False, "group"),
        ("groups", GroupRules(max_running=1), "queue"),
    ],
)
def test_each_setting_has_its_kind_of_scope(field: str, value: Any, owner: str) -> None:
    """P15: elsewhere it is refused by name."""
    settings = ScopeSettings(**{field: value})
    for name, scope in SCOPE.items():
        if name == owner:
            assert settings.checked(scope) is settings
        else:
            with pytest.raises(InvalidInput, match=owner) as caught:
                settings.checked(scope)
            assert caught.value.facts["field"] == field
    for scope in OVER_ALL:
        with pytest.raises(InvalidInput, match="platform") as caught:
            settings.checked(scope)
        assert caught.value.facts["field"] == field


@pytest.mark.parametrize("scope", [*SCOPE.values(), *OVER_ALL])
def test_limit_rate_and_pause_are_for_all(scope: Scope) -> None:
    """P13: one idea for the scopes of a tenant and those of the platform."""
    settings = ScopeSettings(max_running=1, rate=rate("1/s"), paused=Pause("why", "ann"))
    assert settings.checked(scope) is settings
    assert NO_SETTINGS.checked(scope) is NO_SETTINGS


def test_slots_count_only_in_scopes_of_tenants() -> None:
    """P13: a slot belongs to a tenant."""
    settings = ScopeSettings(max_running=1, slots_count=True)
    assert settings.checked(Scope("acme")) is settings
    with pytest.raises(InvalidInput, match="platform"):
        settings.checked(PLATFORM)
    with pytest.raises(InvalidInput, match="no slots"):
        slot_scope_of(PLATFORM.slot("s1"))


@pytest.mark.parametrize("scope", OVER_ALL)
def test_a_scope_of_the_platform_has_a_name_of_its_own(scope: Scope) -> None:
    """P7: the name leads back to it, and to no scope of a tenant."""
    assert scope.checked() is scope
    assert scope_of(scope.name) == scope
    assert scope.of_platform


@pytest.mark.parametrize(
    "scope",
    [
        Scope(""),
        Scope("", ScopeKind.GROUP, "crawl"),
        Scope("acme", ScopeKind.PLATFORM),
        Scope("acme", ScopeKind.TYPE, "send"),
        Scope("", ScopeKind.PLATFORM, "mail"),
        Scope("", ScopeKind.TYPE, ""),
        Scope("", ScopeKind.QUEUE, ""),
    ],
)
def test_a_scope_is_a_tenants_or_the_platforms(scope: Scope) -> None:
    """P7: nothing in between."""
    with pytest.raises(InvalidInput):
        scope.checked()
    with pytest.raises(InvalidInput):
        scope_of(scope.name)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("max_running", ScopeSettings(max_running=0)),
        ("max_running", ScopeSettings(max_running=-1)),
        ("max_running", ScopeSettings(max_running=True)),
        ("max_running", ScopeSettings(max_running=RUNNING_CAP_MAX + 1)),
        ("weight", ScopeSettings(weight=0)),
        ("weight", ScopeSettings(weight=WEIGHT_MAX + 1)),
        ("max_queued", ScopeSettings(max_queued=0)),
        ("max_bytes", ScopeSettings(max_bytes=0)),
        ("rate", ScopeSettings(rate=Rate(0, SECOND, 1))),
        ("rate", ScopeSettings(rate=Rate(1, 7, 1))),
        ("rate.burst", ScopeSettings(rate=Rate(1, SECOND, 0))),
        ("reason", ScopeSettings(paused=Pause("", "ann"))),
        ("author", ScopeSettings(paused=Pause("why", "a\nb"))),
    ],
)
def test_a_setting_out_of_bounds_is_refused(field: str, settings: ScopeSettings) -> None:
    """P15: by name."""
    with pytest.raises(InvalidInput) as caught:
        settings.checked(Scope("acme"))
    assert caught.value.facts["field"] == field


def test_settings_come_back_as_they_were_stored() -> None:
    """P1: and what is not set takes no room."""
    name = Scope("acme", ScopeKind.QUEUE, "a/b").name
    settings = ScopeSettings(
        max_running=3,
        rate=rate("5/m", 9),
        paused=Pause("Ümlaut", "ann"),
        groups=GroupRules(max_running=1, rate=rate("1/s"), ordered=True),
    )
    assert decode(name, encode(settings)) == settings
    assert encode(NO_SETTINGS) == b"{}"


@pytest.mark.parametrize("value", [b"", b"[1]", b'{"max_runing": 1}', b'{"rate": {"count": 1}}'])
def test_what_is_no_setting_is_refused(value: bytes) -> None:
    """P15: the error names where it was to go."""
    name = Scope("acme").name
    with pytest.raises(InvalidInput) as caught:
        decode(name, value)
    assert caught.value.facts["field"] == name


def test_a_misspelt_setting_is_answered_with_the_right_word() -> None:
    """P15: an error says what to do."""
    with pytest.raises(InvalidInput, match="Did you mean 'max_running'"):
        decode(Scope("acme").name, b'{"max_runing": 1}')


# -- groups ----------------------------------------------------------------------------------------


def test_a_group_without_words_is_open() -> None:
    """P9: nothing gates it."""
    gate = group_settings(NO_SETTINGS, NO_SETTINGS)
    assert gate.open
    assert not gate.ordered
    assert not gate.slots_count


def test_the_word_of_a_group_wins_field_by_field() -> None:
    """P13: what it does not say its queue says."""
    queue = ScopeSettings(
        max_running=99, groups=GroupRules(max_running=2, rate=rate("1/s"), ordered=True)
    )
    own = ScopeSettings(ordered=False, rate=rate("9/s"))

    gate = group_settings(own, queue)

    assert (gate.max_running, gate.rate, gate.ordered) == (2, rate("9/s"), False)
    assert group_settings(ScopeSettings(max_running=5, ordered=False), queue).max_running == 5


def test_an_ordered_group_runs_one_at_a_time() -> None:
    """P13: whatever limit is beside it."""
    queue = ScopeSettings(groups=GroupRules(max_running=5, ordered=True))
    assert group_settings(NO_SETTINGS, queue).max_running == 1
    assert group_settings(ScopeSettings(ordered=True, max_running=7), NO_SETTINGS).max_running == 1


def test_a_queue_pauses_no_group_but_itself() -> None:
    """P13: pause and slots are a group's own; the queue's gate is another one."""
    queue = ScopeSettings(paused=Pause("why", "ann"), slots_count=True, max_running=1)
    assert group_settings(NO_SETTINGS, queue).open
    paused = group_settings(ScopeSettings(paused=Pause("why", "ann")), NO_SETTINGS)
    assert not paused.open


@pytest.mark.parametrize(
    ("room", "weights", "expected"),
    [
        (1, [1, 1, 1], 1),
        (7, [1] * 100, 1),
        (100, [1] * 100, 12),
        (100, [1, 1], 50),
        (100, [1000, 1], 1),
        (120, [1, 2, 3], 20),
    ],
)
def test_a_visit_takes_its_part_of_a_claim(room: int, weights: list[int], expected: int) -> None:
    """P9: all that fits when all fit, else an eighth; a heavy weight takes no other's turn."""
    assert rounds(room, weights) == expected
