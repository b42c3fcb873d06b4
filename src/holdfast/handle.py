"""What a tenant's enqueue answers: the stored answer, and a way to wait for the job."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from holdfast.core.errors import InvalidInput
from holdfast.core.result import Result_co
from holdfast.store import Enqueued


class Waiting(Protocol):
    """The part of a tenant that a handle uses."""

    @property
    def wait(self) -> Any: ...


# The tenant is kept beside the fields: so a handle that is stored, sent or compared is the plain
# answer.
class _Handle(Enqueued[Result_co], Generic[Result_co], frozen=True, gc=True, dict=True):
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Enqueued):
            return NotImplemented
        return (self.id, self.created, self.error) == (other.id, other.created, other.error)

    def __hash__(self) -> int:
        return hash(Enqueued(self.id, self.created, self.error))

    def _tenant(self) -> Waiting:
        tenant: Waiting | None = self.__dict__.get("tenant")
        if tenant is None:
            why = f"is a copy without its tenant; use tenant.wait({self.id!r})"
            raise InvalidInput(field="job", why=why)
        return tenant


class JobHandle(_Handle[Result_co], Generic[Result_co], frozen=True, gc=True, dict=True):
    """The answer of `tenant.enqueue`: `id`, `created`, and `wait`."""

    async def wait(self, *, timeout: float = 30.0) -> Result_co:
        """Waits for the job and returns its result, as `tenant.wait` does."""
        result: Result_co = await self._tenant().wait(self, timeout=timeout)
        return result


class SyncJobHandle(_Handle[Result_co], Generic[Result_co], frozen=True, gc=True, dict=True):
    """`JobHandle` without await."""

    def wait(self, *, timeout: float = 30.0) -> Result_co:
        result: Result_co = self._tenant().wait(self, timeout=timeout)
        return result


H = TypeVar("H", JobHandle[Any], SyncJobHandle[Any])


def handle_of(kind: type[H], answer: Enqueued, tenant: Waiting) -> H:
    """A handle of the job that was created or found."""
    handle = kind(answer.id, answer.created)
    handle.__dict__["tenant"] = tenant
    return handle
