"""What the builder of a flow refuses, with a text that says why; nothing of it is stored."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast import App, Batch, Context, Flow, HoldfastError, InvalidInput, Job
from holdfast.core import bounds
from holdfast.core.bounds import FLOW_DEPTH_MAX, UNDO_MAX
from holdfast.core.errors import ConfigError, StoreUnsupported
from holdfast.testing.contract.bench import Bench
from holdfast.testing.contract.flowing import Flowing
from holdfast.workflow import flow as builder
from holdfast.workflow.order import ordered

app = App("memory://")


@app.job
async def step(ctx: Context, name: str = "x") -> str:
    return name


@app.job
async def pair(ctx: Context, left: int, right: list[str]) -> None: ...


@app.job
async def nothing(ctx: Context) -> None: ...


@app.job(key="{name}")
async def keyed(ctx: Context, name: str) -> None: ...


@app.job
class Typed(Job[str]):
    name: str

    async def run(self, ctx: Context) -> str:
        return self.name


def flow_of(*names: str) -> tuple[Flow, list[Any]]:
    flow = Flow("f")
    return flow, [flow.add(step(name=name)) for name in names]


def grown(act: Callable[[Any, Any], object]) -> Callable[[], object]:
    """The act, on a flow with one node."""

    def call() -> object:
        flow, [node] = flow_of("a")
        return act(flow, node)

    return call


def two_callbacks(batch: Batch) -> None:
    batch.then(step())
    batch.then(step())


LOOSE: Any = pair
OTHER = Flow("other")
STRANGER = OTHER.add(step())
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "an empty name": (lambda: Flow(""), "name: must not be empty"),
    "a long name": (lambda: Flow("x" * 65), "name: has 65 characters"),
    "an empty flow": (lambda: Flow("f").built(), "flow: 'f' is empty: add a job"),
    "an empty batch": (lambda: Batch("b").built(), "flow: 'b' is empty: add a job"),
    "a job type": (lambda: Flow("f").add(step), "job: is a job type: call it"),  # type: ignore[call-overload]
    "a number": (lambda: Flow("f").add(7), "job: must be a job, not int"),  # type: ignore[call-overload]
    "an id": (lambda: Flow("f").add(step().with_options(id="a")), "id: of a node comes from"),
    "a condition that is none": (
        grown(lambda flow, node: flow.add(step(), after=node, on_failure="skpi")),
        "on_failure: must be fail, run or skip, got 'skpi'. Did you mean 'skip'",
    ),
    "a node of another flow": (
        lambda: Flow("f").add(step(), after=STRANGER),
        "after: step#0 is a node of another flow, 'other'",
    ),
    "a job as a node": (
        lambda: Flow("f").add(step(), after=step()),  # type: ignore[call-overload]
        "after: ",
    ),
    "a result of another flow": (
        lambda: Flow("f").add(step(name=STRANGER.result())),
        "is a node of another flow",
    ),
    "itself": (lambda: (flow := Flow("f")).add(flow), "flow: contains itself: f -> f"),
    "an empty flow inside": (lambda: Flow("f").add(Flow("g")), "flow: 'g' is empty"),
    "a key inside": (lambda: Flow("f").add(Flow("g", key="k")), "key: only the flow that is"),
    "a map over a job": (lambda: Flow("f").map(step, over=step()), "after: must be nodes"),  # type: ignore[call-overload]
    "a map of a job": (grown(lambda flow, node: flow.map(step(), over=node)), "is a job; give its"),
    "a map of a function": (
        grown(lambda flow, node: flow.map(print, over=node)),
        "job_type: must be a job type, not builtin_function_or_method",
    ),
    "a map of two arguments": (
        grown(lambda flow, node: flow.map(pair, over=node)),
        "job_type: 'pair' needs 'right' besides the item",
    ),
    "a map of no argument": (
        grown(lambda flow, node: flow.map(nothing, over=node)),
        "job_type: 'nothing' takes no argument",
    ),
    "a map of too many": (
        grown(lambda flow, node: flow.map(step, over=node, most=100_001)),
        "most: is 100001, must be 0 to 100000",
    ),
    "a map that runs all the same": (
        grown(lambda flow, node: flow.map(step, over=node, on_failure="run")),
        "on_failure: of a map is 'fail' or 'skip'",
    ),
    "results of a map among nodes": (
        grown(lambda flow, node: flow.results([flow.map(step, over=node)])),
        "nodes: has a map; use its own results()",
    ),
    "two compensations": (
        grown(lambda flow, node: [flow.undo(node, step()), flow.undo(node, step())]),
        "undo: step#0 has one already",
    ),
    "two callbacks": (
        lambda: two_callbacks(Batch("b")),
        "then: 'b' has a callback already",
    ),
    "a wrong argument beside a result": (
        grown(lambda flow, node: pair(left="x", right=node.result())),  # type: ignore[arg-type]
        "arguments of 'pair.left': Expected `int`, got `str`",
    ),
    "a missing argument beside a result": (
        grown(lambda flow, node: LOOSE(right=node.result())),
        "Missing required argument 'left'",
    ),
    "a result outside of a flow": (
        grown(lambda flow, node: app.enqueuer.plan("acme", step(name=node.result()), {})),
        "job: has results of other jobs as arguments: add it to a flow",
    ),
    "a result within a list": (
        grown(lambda flow, node: pair(left=1, right=[node.result()])),
        "Expected `str`, got `Placeholder`",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_when_it_is_made(name: str) -> None:
    """With the field and what to do."""
    build, text = MISTAKES[name]

    with pytest.raises(InvalidInput) as refused:
        build()

    assert text in str(refused.value)


LATE: dict[str, tuple[Callable[[Flow], object], str]] = {
    "a derived key of what is not known": (
        lambda flow: flow.add(keyed(name=flow.add(step()).result())),
        "node keyed#2: key: of 'keyed' comes from arguments that are not known yet",
    ),
    "a delay of the last job": (
        lambda flow: flow.finally_(step().with_options(delay=5)),
        "node finally_: delay: is not for the jobs at the end of a flow",
    ),
    "a payload that is too large": (
        lambda flow: flow.add(
            pair(left=flow.add(step()).result(), right=["x" * 300_000])  # type: ignore[arg-type]
        ),
        "node pair#2: payload: 300",
    ),
}


@pytest.mark.parametrize("name", LATE)
async def test_a_mistake_of_a_node_is_named_at_the_start(name: str) -> None:
    """Nothing is stored."""
    build, text = LATE[name]
    async with App("memory://") as own:
        own.registry = app.registry
        own.__dict__.pop("enqueuer", None)
        flow = Flow("f")
        flow.add(step())
        build(flow)
        with pytest.raises(InvalidInput) as refused:
            await own.tenant("acme").start(flow)

        assert text in str(refused.value)
        assert (await own.tenant("acme").find()).jobs == []


# -- cycles ----------------------------------------------------------------------------------------


async def test_a_cycle_is_named(bench: Bench) -> None:
    """By the path."""
    at = Flowing(bench)
    flow = Flow("round")
    a, b, c = (flow.add(at.step(name)) for name in "abc")
    flow.add(at.step("d"), after=c)
    flow.link(a, b)
    flow.link(b, c)
    flow.link(c, a)

    with pytest.raises(InvalidInput) as refused:
        await at.acme.start(flow)

    path = str(refused.value).partition("has a cycle: ")[2].split(" -> ")
    assert path[0] == path[-1]
    assert set(path) == {"step#0", "step#1", "step#2"}
    assert await at.jobs() == []


async def test_a_node_after_itself_is_a_cycle(bench: Bench) -> None:
    """The shortest one."""
    at = Flowing(bench)
    flow = Flow("self")
    node = flow.add(at.step("a"))
    flow.link(node, node)

    with pytest.raises(InvalidInput, match="has a cycle: step#0 -> step#0"):
        await at.acme.start(flow)


async def test_nodes_may_be_linked_in_any_order(bench: Bench) -> None:
    """A later node can come before an earlier one."""
    at = Flowing(bench)
    flow = Flow("linked")
    last = flow.add(at.step("last"))
    first = flow.add(at.step("first"))
    flow.link(first, last)
    await at.acme.start(flow)
    await at.run()

    assert at.ran == ["first", "last"]


# -- sizes -----------------------------------------------------------------------------------------


def test_a_flow_has_at_most_so_many_nodes_and_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so many nodes after one; a refused node adds no edges."""
    assert (bounds.FLOW_NODES_MAX, bounds.FLOW_EDGES_MAX) == (10_000, 100_000)
    monkeypatch.setattr(builder, "FLOW_NODES_MAX", 4)
    monkeypatch.setattr(builder, "FLOW_EDGES_MAX", 3)
    monkeypatch.setattr(builder, "EDGES_MAX", 3)
    flow, [a, b] = flow_of("a", "b")
    for _ in range(2):
        flow.add(step(), after=a)
    with pytest.raises(InvalidInput, match="has more than 4 nodes"):
        flow.add(step())
    with pytest.raises(InvalidInput, match="step#0 has more than 2 nodes after it"):
        flow.link(a, b)
    flow.link(b, flow.nodes[2])
    with pytest.raises(InvalidInput, match="has more than 3 edges"):
        flow.link(b, flow.nodes[3])
    assert flow.edges == 3


def test_flows_within_flows_are_at_most_so_deep() -> None:
    """The ninth level is refused, and nothing of it is copied."""
    inner, _ = flow_of("a")
    for _ in range(FLOW_DEPTH_MAX - 1):
        outer = Flow("outer")
        outer.add(inner)
        inner = outer

    top = Flow("top")
    with pytest.raises(InvalidInput, match="has more than 8 levels"):
        top.add(inner)
    assert top.nodes == []


def test_a_flow_has_at_most_so_many_compensations() -> None:
    """Its head remembers each."""
    flow, nodes = flow_of(*map(str, range(UNDO_MAX + 1)))
    for node in nodes[:-1]:
        flow.undo(node, step())

    with pytest.raises(InvalidInput, match="undo: a flow has at most 500"):
        flow.undo(nodes[-1], step())


def test_a_flow_that_was_added_twice_needs_no_guess() -> None:
    """Which of its copies is meant cannot be known."""
    inner, [node] = flow_of("a")
    outer = Flow("outer")
    outer.add(inner)
    outer.add(inner)

    assert len(outer.nodes) == 2
    with pytest.raises(InvalidInput, match="is in this flow more than once"):
        outer.add(step(), after=node)
    with pytest.raises(InvalidInput, match="'f' cannot change: it is part of 'outer'"):
        inner.add(step())


# -- others ----------------------------------------------------------------------------------------


async def test_a_started_flow_cannot_change(bench: Bench) -> None:
    """A repeat of the start must mean the same jobs."""
    at = Flowing(bench)
    flow = Flow("f")
    flow.add(at.step("a"))
    await at.acme.start(flow)

    with pytest.raises(InvalidInput, match="it has been started"):
        flow.add(at.step("b"))


async def test_only_flows_are_started(bench: Bench) -> None:
    """A job is enqueued."""
    at = Flowing(bench)

    with pytest.raises(InvalidInput, match="must be a Flow or a Batch, not step"):
        await at.acme.start(at.step("a"))  # type: ignore[arg-type]


def test_the_codec_of_placeholders_cannot_be_chosen() -> None:
    """A payload in it is no payload of a user."""
    fresh = App("memory://")

    with pytest.raises(ConfigError, match="'refs' is for jobs of flows"):

        @fresh.job(codec="refs")
        async def mine(ctx: Context) -> None: ...


@pytest.mark.parametrize("options", [{"name": "holdfast.mine"}, {"queue": "holdfast.flows"}])
def test_reserved_names_cannot_be_registered(options: dict[str, Any]) -> None:
    """Nor enqueued to."""
    fresh = App("memory://")

    with pytest.raises(ConfigError, match="reserved for the library"):

        @fresh.job(**options)
        async def mine(ctx: Context) -> None: ...

    with pytest.raises(HoldfastError, match="reserved for the library"):
        app.enqueuer.plan("acme", step(), {"queue": "holdfast.flows"})


async def test_a_store_without_joins_refuses_flows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, before anything is stored."""
    at = Flowing(bench)
    flow = Flow("f")
    flow.add(at.step("a"))
    less = msgspec.structs.replace(bench.store.capabilities, steps=False)
    monkeypatch.setattr(type(at.mortal), "capabilities", less)

    with pytest.raises(StoreUnsupported, match="flows"):
        await at.acme.start(flow)
    assert at.mortal.calls == []


def test_a_flow_is_freed_with_the_last_name_for_it() -> None:
    """Its nodes may live longer. Left to the collector, flows cost a busy client a tenth more."""
    flow, [first] = flow_of("a")
    flow.add(pair(left=first.result(), right=["b"]), after=first)
    flow.undo(first, nothing)
    flow.finally_(nothing())
    gone = weakref.ref(flow)

    gc.disable()
    try:
        del flow
        assert gone() is None
    finally:
        gc.enable()
    assert first.name == "step#0"


def test_a_plan_keeps_the_order_in_which_nodes_were_added() -> None:
    """Unless a link makes one come after a later one."""
    flow, [a, b, c] = flow_of("a", "b", "c")
    assert ordered(flow) == [a, b, c]

    flow.link(c, a)
    assert ordered(flow) == [b, c, a]


def test_classes_take_results_as_functions_do() -> None:
    """The other arguments are still checked."""
    flow, [node] = flow_of("a")
    flow.add(Typed(name=node.result()))

    assert set(flow.nodes[1].parents) == {node}
    with pytest.raises(InvalidInput):
        Typed(nam=node.result())  # type: ignore[call-arg]
