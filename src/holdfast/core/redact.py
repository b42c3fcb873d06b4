"""Values that contain a secret do not show it in `repr`, which logs and tracebacks print."""

from __future__ import annotations

from typing import Any, ClassVar

SECRETS = frozenset({"token", "nonce", "queueKey", "secret"})
"""Fields with these names are shown as SHOWN."""
SHOWN = "<redacted>"


class Redacted:
    """A base class to list before Struct. `repr` and `rich` show a placeholder for secrets."""

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({parts})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        found = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return [(name, _shown(name, value)) for name, value in found]


class _Hidden:
    def __repr__(self) -> str:
        return SHOWN


_hidden = _Hidden()


def _shown(name: str, value: Any) -> Any:
    return _hidden if name in SECRETS and value is not None else value
