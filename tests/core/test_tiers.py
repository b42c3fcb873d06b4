"""The pure rules of tiers: which layer gives each value that counts."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.bounds import NAME_MAX, TIERS_MAX
from holdfast.core.errors import InvalidInput
from holdfast.core.rate import rate
from holdfast.core.scope import (
    NO_SETTINGS,
    Ceiling,
    GroupRules,
    Pause,
    Scope,
    ScopeKind,
    ScopeSettings,
)
from holdfast.core.scope import encode as encode_settings
from holdfast.core.tiers import (
    BUILT_IN,
    OWN,
    Defaults,
    Effective,
    Layer,
    LimitRules,
    check_puts,
    chosen,
    concerned,
    decode,
    effective,
    encode,
    name_of,
    rates,
    tier_of,
)

PRO = Layer(
    "tier pro",
    Defaults(max_running=5, weight=3, queue=LimitRules(max_running=4), ceiling=Ceiling()),
)
BASE = Layer(
    "platform",
    Defaults(
        max_running=2,
        rate=rate("9/s"),
        max_queued=7,
        queue=LimitRules(rate=rate("3/s")),
        group=LimitRules(max_running=1),
    ),
)
LAYERS = (PRO, BASE)


def of_tenant(**own: Any) -> dict[str, Effective]:
    return chosen(ScopeSettings(**own), ScopeKind.TENANT, LAYERS)


def test_each_value_is_of_the_strongest_layer_that_sets_it() -> None:
    """Own settings, then the tier, then the platform's defaults, then what is built in."""
    found = of_tenant(max_running=9)

    assert found["max_running"] == Effective(9, OWN)
    assert found["weight"] == Effective(3, "tier pro")
    assert found["rate"] == Effective(rate("9/s"), "platform")
    assert found["max_bytes"] == Effective(None, BUILT_IN)


def test_a_queue_has_its_own_layers() -> None:
    """The limits of its tenant are not its own."""
    found = chosen(NO_SETTINGS, ScopeKind.QUEUE, LAYERS)

    assert found["max_running"] == Effective(4, "tier pro")
    assert found["rate"] == Effective(rate("3/s"), "platform")
    assert found["groups"] == Effective(GroupRules(max_running=1), "platform")


def test_rules_for_groups_are_filled_in_one_by_one() -> None:
    """A queue that sets one of them keeps the others of the layers."""
    own = ScopeSettings(groups=GroupRules(rate=rate("1/s"), ordered=True))

    found = chosen(own, ScopeKind.QUEUE, LAYERS)["groups"]

    assert found == Effective(GroupRules(max_running=1, rate=rate("1/s"), ordered=True), OWN)


@pytest.mark.parametrize("most", [None, 8])
def test_a_ceiling_bounds_what_is_above_it_or_not_set(most: int | None) -> None:
    """The lowest layer that has one counts, and is told as the value's layer."""
    layers = (Layer("tier free", Defaults(ceiling=Ceiling(max_running=4))), BASE)
    own = ScopeSettings(max_running=most)

    found = chosen(own, ScopeKind.TENANT, layers)["max_running"]

    bound = Effective(4, "tier free", ceiling=True)
    assert found == (bound if most else Effective(2, "platform"))


def test_an_own_ceiling_counts_before_that_of_the_tier() -> None:
    """The platform may allow one tenant more than its tier."""
    layers = (Layer("tier free", Defaults(ceiling=Ceiling(max_running=4))),)
    own = ScopeSettings(max_running=8, ceiling=Ceiling(max_running=9))

    assert chosen(own, ScopeKind.TENANT, layers)["max_running"] == Effective(8, OWN)


def test_a_limit_that_nobody_sets_is_the_ceiling() -> None:
    """A ceiling without a limit would bound nothing."""
    layers = (Layer("tier free", Defaults(ceiling=Ceiling(max_running=4))),)

    found = chosen(NO_SETTINGS, ScopeKind.TENANT, layers)["max_running"]

    assert found == Effective(4, "tier free", ceiling=True)


def test_what_tiers_do_not_set_stays() -> None:
    """Pauses, and whether slots count."""
    own = ScopeSettings(paused=Pause("why", "ann"), slots_count=True)

    counts = effective(own, ScopeKind.TENANT, LAYERS)

    assert (counts.paused, counts.slots_count) == (own.paused, True)
    assert (counts.max_running, counts.share) == (5, 3)


@pytest.mark.parametrize("kind", [ScopeKind.GROUP, ScopeKind.TYPE, ScopeKind.PLATFORM])
def test_other_scopes_have_only_their_own_settings(kind: ScopeKind) -> None:
    """What a tier says of groups comes by their queue."""
    own = ScopeSettings(max_running=1)

    assert effective(own, kind, LAYERS) is own


def test_a_name_leads_back_to_its_tier() -> None:
    """The platform's defaults have the empty one; other names are no tiers."""
    for tier in ("", "pro", "a/b"):
        assert tier_of(name_of(tier)) == tier
    assert tier_of("scope/tenant/4:acme/") is None
    for bad in (" ", "a\nb", "x" * NAME_MAX):
        with pytest.raises(InvalidInput):
            tier_of(name_of(bad))


def test_defaults_come_back_as_they_were_stored() -> None:
    """And what is not set takes no room."""
    for layer in LAYERS:
        assert decode("tier/x", encode(layer.defaults)) == layer.defaults
    assert encode(Defaults()) == b"{}"


# -- what a change concerns ------------------------------------------------------------------------

T, Q, G = ScopeKind.TENANT, ScopeKind.QUEUE, ScopeKind.GROUP
NARROW = LimitRules(max_running=1)


@pytest.mark.parametrize(
    ("tier", "before", "tiers", "found"),
    [
        ("pro", Defaults(), {"pro": Defaults(max_running=1)}, {"pro": [T]}),
        ("pro", Defaults(rate=rate("1/s")), {}, {"pro": [T]}),
        ("pro", Defaults(ceiling=Ceiling(max_running=1)), {"pro": Defaults()}, {"pro": [T]}),
        ("pro", Defaults(queue=NARROW), {"pro": Defaults(group=NARROW)}, {"pro": [Q, G]}),
        ("pro", Defaults(weight=2), {"pro": Defaults(max_queued=2)}, {}),
        ("", Defaults(max_running=1), {"pro": Defaults(max_running=2)}, {"": [T]}),
        ("", Defaults(max_running=1), {"pro": Defaults(queue=NARROW)}, {"": [T], "pro": [T]}),
        ("", Defaults(group=NARROW), {"pro": Defaults(group=LimitRules(rate=rate("1/s")))},
         {"": [G], "pro": [G]}),
        ("", Defaults(), {"": Defaults(group=NARROW), "pro": Defaults(group=NARROW)}, {"": [G]}),
        ("", Defaults(ceiling=Ceiling(max_running=1)), {"pro": Defaults(max_running=2)},
         {"": [T], "pro": [T]}),
    ],
)  # fmt: skip
def test_a_change_concerns_the_tiers_that_leave_the_value_open(
    tier: str,
    before: Defaults,
    tiers: dict[str, Defaults],
    found: dict[str, list[ScopeKind]],
) -> None:
    """Claims look again only at what rests in these, of these kinds."""
    assert concerned(tier, before, tiers) == found


def test_all_rates_of_a_layer_are_compared() -> None:
    """A change of any other value does not count as a change of rates."""
    slow = rate("1/h")
    parts = (
        Defaults(rate=slow),
        Defaults(ceiling=Ceiling(rate=slow)),
        Defaults(queue=LimitRules(rate=slow)),
        Defaults(group=LimitRules(rate=slow)),
    )

    assert all(rates(each) != rates(Defaults()) for each in parts)
    assert rates(Defaults(weight=2, max_running=3)) == rates(Defaults())


# -- what may be put together ----------------------------------------------------------------------


def put_into(tier: str, tenant: str = "acme") -> tuple[str, bytes]:
    return Scope(tenant).name, encode_settings(ScopeSettings(tier=tier))


@pytest.mark.parametrize(
    ("puts", "why"),
    [
        ([put_into("gold")], "no tier 'gold'"),
        ([(name_of("pro"), None), put_into("pro")], "no tier 'pro'"),
        ([(name_of("free"), None)], "2 tenants are in 'free'"),
        ([(name_of("free"), None), put_into("pro")], "2 tenants are in 'free'"),
        ([(name_of(f"t{n}"), b"{}") for n in range(TIERS_MAX)], f"there are {TIERS_MAX}"),
        ([(name_of("pro"), b"{"), put_into("pro")], "truncated"),
    ],
)
def test_what_may_not_be_put_is_refused(puts: list[tuple[str, bytes | None]], why: str) -> None:
    """All puts of a call are looked at together."""
    with pytest.raises(InvalidInput, match=why):
        check_puts(puts, {"", "free", "pro"}, {"free": 2, "pro": 0}.__getitem__)


def test_a_tier_may_be_made_and_used_with_one_call() -> None:
    """In any order; and one that nobody is in may go."""
    puts = [put_into("gold"), (name_of("gold"), b"{}"), (name_of("pro"), None), ("other", b"{")]

    check_puts(puts, {"free", "pro"}, {"pro": 0}.__getitem__)
