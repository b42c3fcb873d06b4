"""The deploy check: which stored payloads the code of an app cannot read or upgrade.

It decodes as a worker would, and runs the upgrades of the job types, but no handler. It writes
nothing. What its report says is free of payloads unless they are asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.app import App
from holdfast.core.bounds import CHECK_GROUPS_MAX, CHECK_SAMPLES_MAX, PAGE_MAX, within
from holdfast.core.codec import OBJECT, REFS, Codecs
from holdfast.core.errors import CodecNotFound, DecodeError, HoldfastError
from holdfast.core.flow import HEAD, MAP, head_of, pledge_of
from holdfast.core.job import Envelope, JobRecord, State
from holdfast.core.spec import JobSpec
from holdfast.definitions import ScheduleState, schedules_page
from holdfast.store import Find, Selection, Store
from holdfast.typed import JobType

STATES = (
    State.WAITING,
    State.SCHEDULED,
    State.ENQUEUED,
    State.PROCESSING,
    State.RETRYING,
    State.FAILED,
)
"""Of jobs that may run again: parked ones are scheduled, and dead letters may be replayed."""
PAGE = 100
"""Jobs of one page: each can have a payload of 256 KiB."""
TEXT_MAX = 300
"""Characters of a payload, or of an error that may quote it, where these are asked for."""
OTHERS = "(others)"
"""Stands for the types beyond CHECK_GROUPS_MAX: their names may come from outside."""

NOTES = (
    "results of steps and values of signals are not checked: their types are known only to the"
    " handler that reads them",
)
"""What no report can say."""


class Problem(StrEnum):
    """Why a payload cannot be read, or was not checked."""

    UNKNOWN_TYPE = "unknown_type"
    """The app has no such job type. Workers release such jobs for others, a bounded number of
    times.
    """
    NEWER_VERSION = "newer_version"
    """Newer code has written it."""
    UNKNOWN_CODEC = "unknown_codec"
    UNREADABLE = "unreadable"
    """The payload does not fit the type, or an upgrade of it failed."""
    UNCHECKED = "unchecked"
    """Only a worker can tell. This does not count as a failure."""


class Source(StrEnum):
    JOB = "job"
    SCHEDULE = "schedule"
    """The job that a schedule makes."""
    FLOW = "flow"
    """A job that a flow makes later: of a map, a compensation or a last job."""


class Sample(msgspec.Struct, frozen=True):
    """Where to look: a job, or a schedule."""

    tenant: str
    id: str
    text: str | None = None
    """The whole error and the payload, if they were asked for."""


class Group(msgspec.Struct, kw_only=True):
    """Payloads that are alike."""

    source: Source
    type: str
    version: int
    codec: str
    problem: Problem | None
    """None: they can be read."""
    why: str
    count: int = 0
    states: Counter[str] = msgspec.field(default_factory=Counter)
    """Jobs by state; empty for others."""
    samples: list[Sample] = msgspec.field(default_factory=list)


class Report(msgspec.Struct, kw_only=True):
    groups: list[Group] = []
    checked: int = 0
    complete: bool = True
    """False: there are more jobs than were to be read."""
    notes: tuple[str, ...] = NOTES

    @property
    def broken(self) -> int:
        """How many payloads cannot be read."""
        return sum(each.count for each in self.groups if _is_broken(each.problem))


class Options(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str | None = None
    """None: every tenant."""
    samples: int = 3
    """Of each group that cannot be read."""
    jobs_max: int = 1_000_000
    payloads: bool = False
    """Whether samples show payloads and the whole errors, which may quote them."""


async def check_payloads(
    app: App,
    options: Options | None = None,
    told: Callable[[int], None] = lambda number: None,
) -> Report:
    """Checks all payloads in the app's store, which must be open. Calls `told` with how many it has
    checked so far. Other calls go on meanwhile: a job that moves is checked once or not at all.
    """
    options = options or Options()
    within("samples", options.samples, CHECK_SAMPLES_MAX)
    check = _Check(app, options)
    for one in await _schedules(app.store, options.tenant):
        check.schedule(one)
    select, after = Selection(tenant=options.tenant, states=STATES), None
    while True:
        limit = min(PAGE, options.jobs_max - check.jobs)
        if limit <= 0:
            check.report.complete = False
            break
        find = Find(select=select, after=after, limit=limit, newest_first=False)
        page = await app.store.find(find)
        for job in page.jobs:
            check.job(job)
        told(check.report.checked)
        after = page.cursor
        if after is None:
            break
    return check.finished()


async def _schedules(store: Store, tenant: str | None) -> list[ScheduleState]:
    found: list[ScheduleState] = []
    after: str | None = ""
    while after is not None:
        page, after = await schedules_page(store, tenant, after=after, limit=PAGE_MAX)
        found += page
    return found


class _Check:
    """Adds up what is found."""

    def __init__(self, app: App, options: Options) -> None:
        self._app = app
        self._options = options
        self._groups: dict[tuple[Any, ...], Group] = {}
        self.report = Report()
        self.jobs = 0

    def job(self, job: JobRecord) -> None:
        self.jobs += 1
        sealed = job.envelope
        self._add(Source.JOB, sealed, (job.tenant, job.id), job.state)
        try:
            for spec in _specs_of(job):
                self._add(Source.FLOW, _envelope(spec), (job.tenant, job.id))
        except Exception as error:
            damaged = DecodeError(codec=sealed.codec, type=sealed.type, why=str(error))
            self._put(Source.FLOW, sealed, (job.tenant, job.id), (Problem.UNREADABLE, damaged))

    def schedule(self, state: ScheduleState) -> None:
        name = state.tenant, state.name
        if state.definition is None:
            sealed = Envelope("", "json", 0, b"")
            error = DecodeError(codec="json", type="schedule", why="its definition is damaged")
            self._put(Source.SCHEDULE, sealed, name, (Problem.UNREADABLE, error))
            return
        self._add(Source.SCHEDULE, _envelope(state.definition.job), name)

    def finished(self) -> Report:
        """The report, with what cannot be read first."""
        self.report.groups = sorted(
            self._groups.values(),
            key=lambda one: (not _is_broken(one.problem), one.problem is None, one.type),
        )
        return self.report

    def _add(
        self, source: Source, sealed: Envelope, name: tuple[str, str], state: State | None = None
    ) -> None:
        self._put(source, sealed, name, verdict(self._app, sealed), state)

    def _put(
        self,
        source: Source,
        sealed: Envelope,
        name: tuple[str, str],
        found: tuple[Problem | None, HoldfastError | None],
        state: State | None = None,
    ) -> None:
        self.report.checked += 1
        problem, error = found
        why = "" if error is None else brief(error)
        key: tuple[Any, ...] = (source, sealed.type, sealed.version, sealed.codec, problem, why)
        if key not in self._groups and len(self._groups) >= CHECK_GROUPS_MAX:
            key = (source, OTHERS, 0, "", problem, "")
        group = self._groups.get(key)
        if group is None:
            _, kind, version, codec, _, why = key
            group = self._groups[key] = Group(
                source=source, type=kind, version=version, codec=codec, problem=problem, why=why
            )
        group.count += 1
        if state is not None:
            group.states[state.value] += 1
        if problem is not None and len(group.samples) < self._options.samples:
            text = _text(self._app.codecs, sealed, error) if self._options.payloads else None
            group.samples.append(Sample(*name, text))


def verdict(app: App, sealed: Envelope) -> tuple[Problem | None, HoldfastError | None]:
    """What a worker with this app would make of a payload."""
    job_type = app.registry.named(sealed.type)
    if job_type is None:
        return Problem.UNKNOWN_TYPE, None
    if sealed.version > job_type.version:
        return Problem.NEWER_VERSION, None
    try:
        if sealed.codec == REFS:
            return _pledged(job_type, sealed)
        if sealed.codec == "pickle":
            app.codecs.get("pickle")
            return Problem.UNCHECKED, None  # Reading it runs code.
        app.codecs.unseal(sealed, job_type.kind, job_type.version, job_type.upgrades)
    except CodecNotFound as error:
        return Problem.UNKNOWN_CODEC, error
    except DecodeError as error:
        return Problem.UNREADABLE, error
    return None, None


def _pledged(job_type: JobType, sealed: Envelope) -> tuple[Problem | None, HoldfastError | None]:
    """Of a job with results of others among its arguments: those that are there already."""
    try:
        pledge = pledge_of(sealed.body)
        if sealed.version != job_type.version:
            return Problem.UNCHECKED, None
        fields = {one.encode_name: one for one in msgspec.structs.fields(job_type.kind)}
        for name, value in pledge.args.items():
            if name in fields:
                msgspec.json.decode(bytes(value), type=fields[name].type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        wrong = DecodeError(codec=REFS, type=sealed.type, why=str(error))
        wrong.__cause__ = error
        return Problem.UNREADABLE, wrong
    except NotImplementedError:  # A type that only the codec's hook knows.
        pass
    return Problem.UNCHECKED, None


def _specs_of(job: JobRecord) -> Iterator[JobSpec]:
    """The jobs that this one makes later, if it is one of a flow."""
    kind = job.envelope.type
    if kind == HEAD:
        head = head_of(job)
        yield from (spec for _, spec in head.undo)
        yield from head.last
    elif kind == MAP:
        yield msgspec.json.decode(pledge_of(job.envelope.body).args["spec"], type=JobSpec)


def _envelope(spec: JobSpec) -> Envelope:
    return Envelope(spec.type, spec.codec, spec.version, spec.body)


def _is_broken(problem: Problem | None) -> bool:
    return problem not in (None, Problem.UNCHECKED)


# -- words -----------------------------------------------------------------------------------------

_KNOWN = re.compile(
    r"Expected `[^`]+`, got `[^`]+`|Object missing required field `[^`]+`"
    r"|there is no upgrade from version \d+|its definition is damaged"
)
_PATH = re.compile(r" - at `(\$[^`]*)`")


def brief(error: HoldfastError) -> str:
    """What is wrong, in words that come from the code and never from a payload: an error of an
    upgrade, or a wrong value of an enum, would quote it.
    """
    if isinstance(error, CodecNotFound):
        return ""
    text, cause = str(error), error.__cause__
    known, path = _KNOWN.search(text), _PATH.search(text)
    said = known.group() if known is not None else type(cause or error).__name__
    return said if path is None else f"{said} at {path.group(1)}"


def _text(codecs: Codecs, sealed: Envelope, error: HoldfastError | None) -> str:
    """The whole error and the payload, cut to a few lines."""
    try:
        plain: Any = sealed.body
        if sealed.codec not in (OBJECT, "pickle"):
            plain = codecs.get(sealed.codec).decode(sealed.body, Any)
    except Exception as wrong:
        plain = f"<unreadable: {wrong}>"
    shown = f"{plain!r:.{TEXT_MAX}}"
    return shown if error is None else f"{error!s:.{TEXT_MAX}}; payload: {shown}"
