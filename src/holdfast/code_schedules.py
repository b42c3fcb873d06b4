"""`@app.schedule(...)`: schedules that the code defines, registered when a worker starts.

The code wins only when its text has changed since it was last registered: the arguments of the
decorator and the job. Otherwise what was changed live stays.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from holdfast.config import Config
from holdfast.context import Context
from holdfast.core.bounds import TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.codec import Codecs
from holdfast.core.cron import looks_like_cron
from holdfast.core.errors import ConfigError, HoldfastError, InvalidInput
from holdfast.core.schedule import OVER_ALL, Definition, Overlap, check_schedule, code_of
from holdfast.default_tenant import no_default
from holdfast.definitions import Rules, Timed, check_given, defined
from holdfast.dispatch import Dispatcher
from holdfast.enqueue import scheduled_for
from holdfast.firing import Firing, Tenants
from holdfast.schedules import ScheduleHandle
from holdfast.tenant import Tenant
from holdfast.typed import Job, JobFunction, Registry

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("holdfast.schedules")

NOW = 1_767_225_600_000_000
"""Stands for the revision while the code's definition is only checked and hashed."""


class CodeRules(Rules, total=False):
    """The arguments of `@app.schedule` besides its timing."""

    name: str
    """Of the schedule. Default: the name of the job type."""
    tenant: str
    """Whose job it makes. Default: the app's tenant."""
    tenants: Tenants
    """Lists the tenants: each tick makes a job for each of them."""


class ScheduleDecorator(Protocol):
    """Registers a function, or a job type, as what the ticks run."""

    @overload
    def __call__(self, target: JobFunction[P, R], /) -> JobFunction[P, R]: ...
    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, target: Callable[Concatenate[Context, P], R], /) -> JobFunction[P, R]: ...


if TYPE_CHECKING:

    class CronOrName(ScheduleHandle, ScheduleDecorator):
        """What one text gives: a cron text a decorator, a name a handle."""


class CodeSchedule(msgspec.Struct, frozen=True):
    """One schedule of the code."""

    tenant: str
    name: str
    function: JobFunction[..., Any]
    given: Timed
    tenants: Tenants | None


class CodeSchedules:
    """The part of an App that defines schedules."""

    if TYPE_CHECKING:
        config: Config
        registry: Registry
        store: Dispatcher
        job: Callable[..., Any]

        codecs: Codecs

        @property
        def default(self) -> Tenant: ...

    @overload
    def schedule(self, text: str, /) -> CronOrName: ...
    @overload
    def schedule(
        self, cron: str, /, *, zone: str = "UTC", **rules: Unpack[CodeRules]
    ) -> ScheduleDecorator: ...
    @overload
    def schedule(
        self, /, *, every: float, phase: float = 0, **rules: Unpack[CodeRules]
    ) -> ScheduleDecorator: ...
    def schedule(self, text: str | None = None, /, **given: Any) -> Any:
        """With a cron text (five fields, or @daily and the like) or `every`: decorates a function
        that the ticks run. With a name: a handle for that schedule of the default tenant.
        """
        if text is None:
            if "every" not in given:
                raise ConfigError(field="schedule", why="give a cron text, every=, or a name")
        elif not isinstance(text, str):
            why = "decorates with arguments: @app.schedule('0 6 * * *') or @app.schedule(every=300)"
            raise ConfigError(field="schedule", why=why)
        elif not looks_like_cron(text):
            if not given:
                return self.default.schedule(text)
            why = (
                f"{text!r} is the name of a schedule, which takes no {min(given)}=: set it by"
                f" app.schedule({text!r}).set(...). A cron text has five fields"
            )
            raise ConfigError(field="schedule", why=why)
        else:
            given["cron"] = text

        def decorate(target: Any) -> Any:
            return self._schedule(target, dict(given))

        return decorate

    def _schedule(self, target: Any, given: dict[str, Any]) -> JobFunction[..., Any]:
        owner, tenants = given.pop("tenant", None), given.pop("tenants", None)
        name = given.pop("name", None)
        try:
            check_given(given)  # type: ignore[arg-type]
            function = target if isinstance(target, JobFunction) else self.job(target)
            if not isinstance(function, JobFunction):
                raise InvalidInput(field="schedule", why="decorates a function, not a class")
            found = CodeSchedule(
                tenant=self._owner(owner, tenants, function.__name__),
                name=check_schedule(name or self.registry.of_kind(function.kind).name),
                function=function,
                given=given,  # type: ignore[arg-type]
                tenants=tenants,
            )
            self._check(found)
        except InvalidInput as error:
            field = f"schedule {getattr(target, '__name__', name)}"
            raise ConfigError(field=field, why=str(error)) from None
        known = self._code_schedules
        if (found.tenant, found.name) in known:
            why = f"{found.name!r} is defined twice; give one of them another name="
            raise ConfigError(field="schedule", why=why)
        known[found.tenant, found.name] = found
        return function

    def _owner(self, tenant: str | None, tenants: Tenants | None, name: str) -> str:
        if tenants is not None:
            if tenant is not None:
                raise InvalidInput(field="tenants", why="give either tenant or tenants")
            if not callable(tenants):
                raise InvalidInput(field="tenants", why="must be a function that lists tenants")
            return OVER_ALL
        if tenant is None:
            if self.config.tenant is None:
                raise no_default(f"the schedule {name!r}")
            return self.config.tenant
        return check_name("tenant", tenant, TENANT_MAX)

    def _check(self, one: CodeSchedule) -> None:
        """Refuses at once what a worker could not register."""
        try:
            job: Job[Any] = one.function()
        except InvalidInput as error:
            why = f"needs arguments, which a tick does not have ({error}): give them defaults"
            raise InvalidInput(field="job", why=why) from None
        if one.tenants is not None and one.given.get("overlap") == Overlap.QUEUE:
            why = "'queue' is not possible over many tenants; use skip, allow or cancel"
            raise InvalidInput(field="overlap", why=why)
        self._defined(one, job)

    def _defined(self, one: CodeSchedule, job: Job[Any]) -> Definition:
        made = scheduled_for(self.registry, self.codecs, one.tenant, job)
        return defined(None, made, one.given, NOW)

    @property
    def _code_schedules(self) -> dict[tuple[str, str], CodeSchedule]:
        found: dict[tuple[str, str], CodeSchedule] = self.__dict__.setdefault("_scheduled", {})
        return found

    def firing(self) -> Firing:
        """What fires ticks in this app."""
        known = self._code_schedules

        def listing(name: str) -> Tenants | None:
            found = known.get((OVER_ALL, name))
            return None if found is None else found.tenants

        return Firing(self.store, listing)

    async def register_schedules(self) -> int:
        """Stores the schedules of the code whose text has changed. Returns how many. A worker calls
        it when it starts. A failure is only logged: the worker can run other jobs.
        """
        number = 0
        for one in self._code_schedules.values():
            wanted = self._defined(one, one.function())
            handle = ScheduleHandle(self.store, one.tenant, one.name)
            try:
                number += await handle.register(wanted, code_of(wanted))
            except HoldfastError as error:
                logger.warning("schedule %r was not registered: %s", one.name, error)
        return number
