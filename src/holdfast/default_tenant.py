"""The default tenant: `App(url, tenant="main")` has the calls of that tenant itself."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast.core.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


class HasDefault(Protocol):
    """An app, or its bridge for blocking code."""

    @property
    def default(self) -> Any:
        """The handle of the default tenant. Raises ConfigError if the app has none."""


class OfDefault(Generic[P, R]):
    """A method of the tenant's handle as a method of the app: `get = OfDefault(Tenant.get)`."""

    def __init__(self, call: Callable[Concatenate[Any, P], R]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, app: None, owner: Any) -> OfDefault[P, R]: ...
    @overload
    def __get__(self, app: HasDefault, owner: Any) -> Callable[P, R]: ...
    def __get__(self, app: HasDefault | None, owner: Any) -> Any:
        if app is None:
            return self
        return cast(Callable[P, R], MethodType(self._call, app.default))


def no_default(what: str = "this call") -> ConfigError:
    """The error of a call that names no tenant on an app without a default tenant."""
    why = f"{what} names no tenant and the app has no default: App(url, tenant='main') sets one"
    return ConfigError(field="tenant", why=f"{why}; or call app.tenant(name)")
