"""The values that the machine draws: few, and all whole seconds, so that instants coincide."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.core.clock import SECOND, micros
from holdfast.core.job import (
    Abandoned,
    Completed,
    Failed,
    Outcome,
    Reason,
    Released,
    Snoozed,
)
from holdfast.core.journal import EntryKind, Key
from holdfast.core.scope import PLATFORM, ScopeSettings
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    MAIL,
    group_of,
    over_all,
    queue_of,
    rules,
    tenant_of,
    type_of,
)

TENANTS = (ACME, GLOBEX)
QUEUES = (MAIL, AUDIO)
GROUPS = ("g1", "g2")

STEPS = ("s1", "s2")
SIGNALS = ("go", "stop")
JOINS = ("lines", "pages")

lengths = st.sampled_from([0, 1, 5, 10, 30]).map(micros)
tenants = st.sampled_from(TENANTS)
some_tenants = st.sampled_from([None, (ACME,), (GLOBEX,), TENANTS])
some_queues = st.sampled_from([None, (MAIL,), (AUDIO,), QUEUES])
some_groups = st.sampled_from([(), (), (), ("g1",), GROUPS])
scopes = st.sampled_from(
    [
        tenant_of(),
        *(queue_of(queue) for queue in QUEUES),
        *(group_of(group) for group in (*GROUPS, *GROUPS)),
        queue_of(MAIL, GLOBEX),
        group_of("g1", GLOBEX),
    ]
)
platform_scopes = st.sampled_from([PLATFORM, over_all(MAIL), type_of("send"), type_of("read")])
limits = st.builds(ScopeSettings, max_running=st.sampled_from([None, 1, 1, 2, 3]))
picks = st.integers(0, 1000)
kept = st.sampled_from([0, 20 * SECOND, 3600 * SECOND, 3600 * SECOND])
all_rules = st.builds(
    rules,
    max_attempts=st.integers(1, 3),
    keep_us=kept,
    keep_failed_us=kept,
    key_us=st.sampled_from([None, None, 30 * SECOND]),
)
options = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from([ACME, ACME, ACME, GLOBEX]),
        "queue": st.sampled_from(QUEUES),
        "type": st.sampled_from(["send", "read"]),
        "rules": all_rules,
        "priority": st.integers(-2, 2),
        "delay_us": st.just(0) | lengths,
        "ttl_us": st.sampled_from([None, None, None, None, None, 10 * SECOND, 40 * SECOND]),
        "key": st.sampled_from([None, None, None, None, "k1", "k2"]),
        "group": st.sampled_from([None, "g1", "g1", "g2"]),
    }
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Completed(b"done")),
    st.just(Completed(b"done too")),
    st.builds(Failed, error=st.just("boom"), after_us=st.none() | lengths),
    st.just(Failed("no", retryable=False)),
    st.just(Failed("slow", reason=Reason.TIMEOUT)),
    st.builds(Released, delay_us=lengths, miss=st.booleans()),
    st.builds(Snoozed, delay_us=lengths),
    st.just(Abandoned()),
)
keys: st.SearchStrategy[Key] = st.sampled_from(
    [
        *((EntryKind.STEP, name) for name in (*STEPS, *STEPS)),
        *((EntryKind.POSITION, name) for name in STEPS),
        *((EntryKind.JOIN, name) for name in (*JOINS, *JOINS)),
        *((EntryKind.ERROR, name) for name in ("0", "1")),
        (EntryKind.LOG, ""),
    ]
)
no_keys: list[Key] = []
entries = st.just(no_keys) | st.lists(keys, max_size=4)
"""The entries of one extension or ack, whose values the machine numbers."""
