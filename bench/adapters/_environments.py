"""Makes the environments of some adapters of the harness and says where they are.

Run beside the harness's `run.py`: `python _environments.py OUT NAME...` writes a JSON object of
`{name: {"python": path, "version": text}}`. An adapter that cannot be installed is left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def made(names: list[str]) -> dict[str, Any]:
    import run  # type: ignore[import-not-found,unused-ignore]

    found: dict[str, Any] = {}
    run.tools_python()
    for name in names:
        adapter = run.Adapter(name)
        try:
            run.make_venv(adapter.venv, adapter.requires)
            ask = f"from importlib.metadata import version; print(version({name_of(adapter)!r}))"
            told = subprocess.run(
                [adapter.python(), "-c", ask], capture_output=True, text=True, check=True
            )
        except subprocess.CalledProcessError as error:
            run.say(f"{name} not run: could not install ({error})")
        else:
            found[name] = {"python": adapter.python(), "version": told.stdout.strip()}
    return found


def name_of(adapter: Any) -> str:
    """The distribution whose version the report shows."""
    return str(adapter.meta["DISTS"][0])


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        json.dump(made(sys.argv[2:]), file)
