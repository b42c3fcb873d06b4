"""A store that fails on demand, to test how a program handles an unavailable store.

faults = Faults(open_store("memory://"))
app = App(faults.store)
faults.fail("ack", times=3)         # the next three acks do not reach the store
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from holdfast.core.capabilities import Capabilities
from holdfast.core.errors import StoreUnavailable
from holdfast.store import Store


class Faults:
    """Wraps a real store, counts its calls and makes some of them fail."""

    def __init__(self, real: Store) -> None:
        self.real = real
        self.calls: dict[str, list[tuple[Any, ...]]] = {}
        """The arguments of every call so far, by verb."""
        self._lock = threading.Lock()
        self._planned: dict[str, deque[tuple[Exception, bool]]] = {}
        self._conditions: list[tuple[str, Callable[[Any], bool], Exception]] = []
        self._awaited: list[tuple[str, int, Callable[[], object]]] = []
        self.store = cast(Store, _Through(self))

    def fail(
        self, verb: str, *, times: int = 1, error: Exception | None = None, late: bool = False
    ) -> None:
        """Makes the next calls of the verb raise, before they reach the store or, with `late`,
        after.
        """
        error = error or StoreUnavailable(store="faults", why="told to fail")
        with self._lock:
            self._planned.setdefault(verb, deque()).extend([(error, late)] * times)

    def fail_if(self, verb: str, condition: Callable[[Any], bool], error: Exception) -> None:
        """Makes calls of the verb raise if the condition is true for their first argument."""
        self._conditions.append((verb, condition, error))

    def heal(self) -> None:
        """Ends all faults."""
        with self._lock:
            self._planned.clear()
            self._conditions.clear()

    def count(self, verb: str) -> int:
        """The number of calls of the verb, failed ones included."""
        return len(self.calls.get(verb, ()))

    async def arrived(self, verb: str, count: int) -> None:
        """Returns when the verb has been called this many times in total, from any thread."""
        loop = asyncio.get_running_loop()
        here = asyncio.Event()
        with self._lock:
            if self.count(verb) >= count:
                return
            tell = partial(loop.call_soon_threadsafe, here.set)
            self._awaited.append((verb, count, tell))
        await here.wait()

    def _note(self, verb: str, args: tuple[Any, ...]) -> None:
        self.calls.setdefault(verb, []).append(args)
        for awaited in list(self._awaited):
            if awaited[0] == verb and self.count(verb) >= awaited[1]:
                self._awaited.remove(awaited)
                awaited[2]()

    async def pass_on(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with self._lock:
            self._note(verb, args)
            planned = self._planned.get(verb)
            error, late = planned.popleft() if planned else (None, False)
        for one, condition, told in self._conditions:
            if one == verb and condition(args[0]):
                raise told
        if error is not None and not late:
            raise error
        answer = await getattr(self.real, verb)(*args, **kwargs)
        if error is not None:
            raise error
        return answer


class _Through:
    """The store with faults: every verb of the contract."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    @property
    def capabilities(self) -> Capabilities:
        return self._faults.real.capabilities

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if verb.startswith("_"):
            raise AttributeError(verb)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._faults.pass_on(verb, args, kwargs)

        return call
