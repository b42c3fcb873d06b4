"""How polls and full listings of a source go on, page by page. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.bounds import REASON_MAX
from holdfast.core.clock import Micros
from holdfast.core.cursor import Moved
from holdfast.core.edge_bounds import SOURCE_LISTING_PAGES_MAX
from holdfast.core.errors import SourceError
from holdfast.core.source import Fault, Listing, Page, SourcePlan, SourceState, Strategy


def more(plan: SourcePlan, page: Page, usual: bool) -> bool:
    """Whether there are more pages: as the page says, or else as usual."""
    if page.more is not None:
        return bool(page.more)
    tokens = plan.strategy in (Strategy.TOKEN, Strategy.PUSH)
    return usual and not (tokens and page.next is None)


def counted(state: SourceState, items: int) -> SourceState:
    """Counts a page and its items."""
    totals = state.totals
    return replace(
        state, totals=replace(totals, pages=totals.pages + 1, items=totals.items + items)
    )


def polled(state: SourceState, way: Moved, items: int, at: Micros) -> SourceState:
    """The state after a page of a poll. A poll has only so many; the next one goes on behind."""
    after = replace(counted(state, items), high=way.high, fault=None)
    if way.more and state.pages + 1 < state.plan.pages:
        return replace(after, position=way.next, pages=state.pages + 1)
    fault = None
    if way.more:
        pages = state.plan.pages
        why = f"a poll had {pages} pages and did not end; the next one goes on behind them"
        fault = Fault(code=SourceError.code, why=why, at=at, since=at)
    return replace(after, position=None, pages=0, polled_at=at, fault=fault)


def listed(state: SourceState, way: Moved, items: int, at: Micros) -> SourceState:
    """The state after a page of a full listing."""
    listing = state.listing
    assert listing is not None
    listing = replace(
        listing, position=way.next, pages=listing.pages + 1, items=listing.items + items
    )
    state = replace(counted(state, items), listing=listing, fault=None)
    if not way.more:
        why = listing_fault(state, state.plan)
        if why is None:
            return replace(state, listing=replace(listing, swept=""))
    elif listing.pages >= SOURCE_LISTING_PAGES_MAX:
        why = f"a full listing had {listing.pages} pages and did not end"
    else:
        return state
    fault = Fault(code=SourceError.code, why=why[:REASON_MAX], at=at, since=at)
    return replace(state, listing=None, listed_at=at, listing_fault=fault)


def wants_listing(state: SourceState, now: Micros) -> bool:
    """Whether a full listing shall begin now."""
    if state.listing is not None:
        return False
    due = state.plan.listing_us
    return bool(state.asked_at) or (due is not None and now >= state.listed_at + due)


def listing_begun(state: SourceState, now: Micros) -> SourceState:
    """A full listing begins: objects that it does not find have an older generation."""
    listing = Listing(began_at=now, any_share=state.any_share)
    generation = state.generation + 1
    return replace(state, generation=generation, listing=listing, asked_at=0, any_share=False)


def listing_fault(state: SourceState, plan: SourcePlan) -> str | None:
    """Why nothing may be taken for gone after a listing that has read all its pages."""
    listing = state.listing
    if listing is None or listing.any_share or plan.share >= 1:
        return None
    missing = state.objects - listing.found
    if not listing.items and state.objects:
        return (
            f"a full listing was empty, but the shadow has {state.objects} objects; "
            "nothing was taken for gone"
        )
    if missing > state.objects * plan.share:
        return (
            f"a full listing lacks {missing} of {state.objects} objects, more than the share of "
            f"{plan.share:g} that may be gone at once; nothing was taken for gone"
        )
    return None


def listing_ended(state: SourceState, at: Micros) -> SourceState:
    """A full listing has been compared with all rows of the shadow."""
    return replace(state, listing=None, listed_at=at, listing_fault=None)


def begun(state: SourceState, plan: SourcePlan, run: str, job: str, until: Micros) -> SourceState:
    """A run begins to write the source; earlier runs may not go on."""
    return replace(state, plan=plan, poller=run, job=job, until=until)


def held(state: SourceState, job: str, now: Micros) -> bool:
    """Whether the run of another job writes the source now."""
    return state.until > now and state.job != job


def released(state: SourceState) -> SourceState:
    """Nobody writes the source: a run has ended, or shall not go on."""
    return replace(state, poller="", job="", until=0)
