"""The answer of another service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from holdfast.context import Fail
from holdfast.core.errors import OutboundRefused
from holdfast.outbound.rules import is_final

SHOWN_CHARS_MAX = 200
"""Of an answer's body, in the error of a refusal."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a service answered, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Their names are in lower case; of several with one name the last."""
    body: bytes
    method: str
    place: str
    """Host and path of the call, without its query."""
    tries: int = 1

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as UTF-8; wrong bytes are replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self, kind: Any = Any) -> Any:
        """The body, decoded as this type. Raises OutboundRefused if it does not fit."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._refused(f"its answer cannot be read: {error}") from None

    def check(self) -> Self:
        """The answer itself if its status is 2xx.

        Raises Fail if another attempt would be refused again: 3xx, and 4xx except 401, 403, 408,
        409, 423, 425 and 429. Raises OutboundRefused for all others: the job's policy goes on.
        """
        if self.ok:
            return self
        shown = "".join(each if each.isprintable() else " " for each in self.text[:SHOWN_CHARS_MAX])
        error = self._refused(f"status {self.status}" + (f": {shown}" if shown else ""))
        if is_final(self.status):
            raise Fail(str(error)) from error
        raise error

    def _refused(self, why: str) -> OutboundRefused:
        return OutboundRefused(method=self.method, place=self.place, why=why, status=self.status)
