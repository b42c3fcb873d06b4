"""Typed jobs: classes and functions whose arguments are checked at the call, not in the worker."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    get_origin,
    get_type_hints,
)

import msgspec
import msgspec.inspect
from msgspec.structs import asdict

from holdfast.context import Context, SyncContext
from holdfast.core.codec import Upgrade, from_plain, to_plain
from holdfast.core.errors import (
    ConfigError,
    InvalidInput,
    InvalidPayload,
    JobTypeAlreadyRegistered,
    JobTypeNotRegistered,
    did_you_mean,
)
from holdfast.core.job import Rules
from holdfast.core.placeholder import Placeholder
from holdfast.core.result import Result_co
from holdfast.core.source import SourcePlan

P = ParamSpec("P")
R = TypeVar("R")


class JobMeta(msgspec.StructMeta):
    """Checks the arguments of a job when it is created.

    Decoding does not call this; it does its own checks.
    """

    def __new__(
        mcls, name: str, bases: tuple[type, ...], space: dict[str, Any], **config: Any
    ) -> JobMeta:
        config = {"frozen": True, "kw_only": True, **config}
        return super().__new__(mcls, name, bases, space, **config)

    if not TYPE_CHECKING:  # Type checkers would take it for the signature of every job.

        def __call__(cls, *args, **kwargs):
            return _checked(cls, super().__call__, args, kwargs)


def _checked(
    kind: JobMeta, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if Placeholder in map(type, kwargs.values()) or Placeholder in map(type, args):
        return _pending(kind, make, args, kwargs)
    try:
        if not args and kwargs.keys() == _names(kind) and not _nested(kind):
            # No argument is missing or unknown, so constructing the job checks it.
            return msgspec.convert(kwargs, kind, dec_hook=from_plain)
        job = make(*args, **kwargs)
        fields = {name: getattr(job, name) for name in kind.__struct_fields__}
        if _nested(kind):  # msgspec does not check the fields of an instance.
            fields = msgspec.to_builtins(fields, enc_hook=to_plain)
        return msgspec.convert(fields, kind, dec_hook=from_plain)
    except (TypeError, ValueError) as error:  # msgspec's ValidationError is a ValueError.
        raise InvalidPayload(field="payload", type=kind.__name__, why=str(error)) from error


def _pending(
    kind: JobMeta, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Pending:
    """The job of a flow that gets results of other jobs: checks its other arguments."""
    name = kind.__name__
    try:
        job = make(*args, **kwargs)
        known: dict[str, Any] = {}
        places: dict[str, Placeholder] = {}
        for field in msgspec.structs.fields(cast(type[Job], kind)):
            name = f"{kind.__name__}.{field.name}"
            value = getattr(job, field.name)
            if isinstance(value, Placeholder):
                places[field.encode_name] = value
                continue
            plain = msgspec.to_builtins(value, enc_hook=to_plain) if _nested(kind) else value
            known[field.encode_name] = msgspec.convert(plain, field.type, dec_hook=from_plain)
    except (TypeError, ValueError) as error:
        raise InvalidPayload(field="payload", type=name, why=str(error)) from error
    return Pending(kind, known, places)


@cache
def _names(kind: JobMeta) -> frozenset[str]:
    return frozenset(kind.__struct_fields__)


@cache
def _nested(kind: type) -> bool:
    """Whether a field can hold an object whose own fields are not checked yet."""
    whole = msgspec.inspect.type_info(kind)
    return isinstance(whole, msgspec.inspect.StructType) and any(
        _holds_objects(field.type) for field in whole.fields
    )


def _holds_objects(info: Any) -> bool:
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
        return True
    parts = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    parts += [*getattr(info, "item_types", ()), *getattr(info, "types", ())]
    return any(_holds_objects(part) for part in parts if part is not None)


# Repeated for type checkers, which do not see that `frozen` and `kw_only` are inherited.
@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Job(msgspec.Struct, Generic[Result_co], metaclass=JobMeta, frozen=True, kw_only=True):
    """Base class of typed jobs. The fields are the payload, `run(ctx)` is the handler. Register a
    subclass with `@app.job`. `Job[float]` tells type checkers what `run` returns.
    """

    if TYPE_CHECKING:

        def run(self, ctx: Context[Any], /) -> Awaitable[Result_co] | Result_co: ...

    def with_options(self, **options: Any) -> Planned[Result_co]:
        """The job together with its own enqueue options, for `enqueue_many`."""
        return Planned(self, options)


class Pending:
    """A job that can only be a node of a flow: some of its arguments are results of other jobs, or
    its kind is a type whose code may be elsewhere.
    """

    def __init__(self, kind: Any, known: dict[str, Any], places: dict[str, Placeholder]) -> None:
        self.kind: type[Job[Any]] | JobType = kind
        self.known = known
        """The other arguments."""
        self.places = places

    def with_options(self, **options: Any) -> Planned[Any]:
        """As `Job.with_options`."""
        return Planned(cast(Any, self), options)


class Planned(msgspec.Struct, Generic[Result_co], frozen=True):
    """A job together with its enqueue options."""

    job: Job[Result_co]
    options: dict[str, Any]


AnyJob: TypeAlias = Job[R] | Planned[R]
"""What can be enqueued; the parameter is the type of the result."""


def the_job(given: Job[Any] | Planned[Any]) -> Job[Any]:
    """The job. Raises InvalidInput for anything else."""
    if isinstance(given, Planned):
        given = given.job
    if isinstance(given, Job):
        return given
    made: object = given
    if isinstance(made, JobFunction) or (inspect.isclass(made) and issubclass(made, Job)):
        why = f"is a job type: call it, {made.__name__}(...), to make a job"
    elif isinstance(made, Pending):
        why = "has results of other jobs as arguments: add it to a flow and start that"
    elif inspect.isfunction(made):
        why = f"is a plain function: decorate {made.__name__} with @app.job"
    elif inspect.iscoroutine(made):
        why = "is a coroutine, not a job; decorate its function with @app.job"
        made.close()
    else:
        why = f"must be a job, not {type(made).__name__}"
    raise InvalidInput(field="job", why=why)


class Style(StrEnum):
    """Where a handler runs."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


class JobType(msgspec.Struct, frozen=True, kw_only=True):
    """A registered job type: how its jobs are created, stored and run."""

    name: str
    kind: type[Job]
    queue: str
    priority: int
    rules: Rules
    style: Style
    version: int
    upgrades: Mapping[int, Upgrade]
    codec: str
    key: Callable[[Any], str | None] | None = None
    """Derives the idempotency key of a job."""
    result: Any = Any
    """The return annotation of the handler."""
    home: str
    """`module:qualified.name`, by which a child process imports the handler."""
    built_in: bool = False
    """Part of every app: it is not published, not listed, and runs without the app's middleware."""


class JobFunction(Generic[P, R]):
    """A function registered as a job type. Calling it makes a typed job and does not run it."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.kind = _kind_of(function, name)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.__wrapped__ = function
        self._names = self.kind.__struct_fields__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        if not args:
            return self.kind(**kwargs)
        if len(args) > len(self._names):
            why = f"takes {len(self._names)} positional arguments, {len(args)} were given"
            raise InvalidPayload(field="payload", type=self.__name__, why=why)
        named = dict(zip(self._names, args, strict=False))
        if kwargs and (twice := named.keys() & kwargs.keys()):
            raise InvalidPayload(
                field="payload", type=self.__name__, why=f"{min(twice)!r} was given twice"
            )
        return self.kind(**named, **kwargs)


_TAKEN = frozenset({"run", "self"})


def _kind_of(function: Callable[..., Any], name: str) -> type[Job]:
    """A Job class with the function's parameters as fields and the function as `run`."""
    parameters = list(inspect.signature(function).parameters.values())
    hints = get_type_hints(function)
    first = hints.get(parameters[0].name, Context) if parameters else None
    kind = get_origin(first) or first
    if not (inspect.isclass(kind) and issubclass(kind, Context)):
        raise ConfigError(
            field=name, why="the first parameter of a job function must be ctx: Context"
        )
    if issubclass(kind, SyncContext) and inspect.iscoroutinefunction(function):
        why = "is async, so its first parameter must be ctx: Context; SyncContext blocks"
        raise ConfigError(field=name, why=why)
    annotations: dict[str, Any] = {}
    space: dict[str, Any] = {"__annotations__": annotations, "__module__": function.__module__}
    for parameter in parameters[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            why = f"parameter {parameter.name!r}: *args, **kwargs and / cannot be stored"
            raise ConfigError(field=name, why=why)
        if hasattr(Job, parameter.name) or parameter.name in _TAKEN:
            why = f"parameter {parameter.name!r}: the name is reserved in every job"
            raise ConfigError(field=name, why=why)
        annotations[parameter.name] = hints.get(parameter.name, Any)
        if parameter.default is not parameter.empty:
            space[parameter.name] = parameter.default

    def run(self: Job, ctx: Context) -> Any:
        return function(ctx, **asdict(self))

    space["run"] = run
    return cast(type[Job], JobMeta(name, (Job,), space))


def result_of(work: Callable[..., Any]) -> Any:
    """The return annotation of a handler; Any if there is none."""
    try:
        return get_type_hints(work).get("return", Any)
    except (
        NameError,
        TypeError,
    ):  # The annotation uses a name that is imported for type checkers only.
        return Any


class Registry:
    """The job types of an app, by name and by class."""

    def __init__(self) -> None:
        self._by_name: dict[str, JobType] = {}
        self._by_kind: dict[type[Job], JobType] = {}
        self._built_in: dict[str, JobType] = {}
        self.plans: dict[str, Callable[[], SourcePlan]] = {}
        """The plans of the sources of the code, by name. A plan is known when its source has a job
        for its changes.
        """

    def __iter__(self) -> Iterator[JobType]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, job_type: JobType) -> None:
        taken = self.named(job_type.name)
        if taken is not None:
            raise JobTypeAlreadyRegistered(field="name", type=job_type.name, owner=taken.home)
        kept = self._built_in if job_type.built_in else self._by_name
        kept[job_type.name] = job_type
        self._by_kind[job_type.kind] = job_type

    def named(self, name: str) -> JobType | None:
        return self._by_name.get(name) or self._built_in.get(name)

    def called(self, name: str) -> JobType:
        """The type of a name. Raises JobTypeNotRegistered."""
        found = self.named(name)
        if found is None:
            hint = did_you_mean(name, self.names())
            raise JobTypeNotRegistered(field="type", type=name, hint=hint)
        return found

    def of(self, job: Job) -> JobType:
        """The type of a job. Raises JobTypeNotRegistered if its class is not registered here."""
        return self.of_kind(type(job))

    def of_kind(self, kind: type[Job]) -> JobType:
        """The type of a job class. Raises JobTypeNotRegistered if it is not registered here."""
        found = self._by_kind.get(kind)
        if found is None:
            name = kind.__name__
            raise JobTypeNotRegistered(
                field="job", type=name, hint=did_you_mean(name, self.names())
            )
        return found

    def names(self) -> list[str]:
        """Registered names, sorted."""
        return sorted(self._by_name)

    def queues(self) -> tuple[str, ...]:
        """The queues that registered types go to by default, sorted."""
        return tuple(sorted({job_type.queue for job_type in self._by_name.values()}))
