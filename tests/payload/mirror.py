"""A mapper for tests: it stores every value backwards, and fails those that a test names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.mapped import BLOB, MARK
from holdfast.payload.values import Kind, Mapped, Use, Value
from holdfast.store import Capabilities

OWN = MARK + b"m"


class Mirror:
    """`out` and `back` fail the values of a kind, or of a job, with these errors."""

    def __init__(self) -> None:
        self.out: dict[str, HoldfastError] = {}
        self.back: dict[str, HoldfastError] = {}
        self.calls: list[tuple[str, int]] = []
        self.kinds: set[Kind] = set()
        self.prepared: list[str] = []
        self.closed = 0
        self.away: HoldfastError | None = None
        """What every call raises."""

    def capabilities(self, inner: Capabilities) -> Capabilities:
        return msgspec.structs.replace(inner, encodes=True)

    async def prepare(self, tenant: str) -> None:
        self.prepared.append(tenant)

    async def outgoing(self, values: Sequence[Value]) -> list[Mapped]:
        self.calls.append(("out", len(values)))
        if self.away is not None:
            raise self.away
        return [self._out(value) for value in values]

    async def incoming(self, values: Sequence[Value], use: Use) -> list[Mapped]:
        self.calls.append((use.value, len(values)))
        if self.away is not None:
            raise self.away
        return [self._back(value) for value in values]

    async def close(self) -> None:
        self.closed += 1

    def _out(self, value: Value) -> Mapped:
        self.kinds.add(value.kind)
        error = self.out.get(value.kind) or self.out.get(value.id)
        if error is not None or not isinstance(value.body, bytes):
            return error or value
        codec = f"{BLOB}{value.codec}" if value.codec else ""
        return msgspec.structs.replace(value, codec=codec, body=OWN + value.body[::-1])

    def _back(self, value: Value) -> Mapped:
        error = self.back.get(value.kind) or self.back.get(value.id)
        if error is not None:
            return error
        if not isinstance(value.body, bytes) or not value.body.startswith(OWN):
            return value
        plain = value.body[len(OWN) :][::-1]
        return msgspec.structs.replace(value, codec=value.codec.removeprefix(BLOB), body=plain)
