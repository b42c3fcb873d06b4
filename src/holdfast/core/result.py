"""The type of a job's result, for type checkers: jobs and enqueue answers are generic in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Result_co = TypeVar("Result_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)
