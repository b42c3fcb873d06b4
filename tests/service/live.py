"""A `holdfast serve` process on a free port, for tests that need a socket."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping

from tests.servers import watcher
from tests.servers.process import free_port

START_S = 30.0
STOP_S = 30.0


@contextlib.contextmanager
def serving(
    store: str,
    *options: str,
    env: Mapping[str, str] | None = None,
    heard: list[str] | None = None,
) -> Iterator[str]:
    """Its URL; the process is ended by SIGTERM on exit, and must end by itself then. `heard` gets
    what it wrote to its standard error.
    """
    port = free_port()
    command = [sys.executable, "-m", "holdfast", "-q", "serve", f"--port={port}", *options]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HOLDFAST_STORE": store, **(env or {})},
        stderr=subprocess.PIPE,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            _, told = process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
    assert process.returncode == 0, told
    if heard is not None:
        heard.append(told)


def _wait_until_ready(process: subprocess.Popen[str], url: str) -> None:
    def ready() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):
            return True
        return process.poll() is not None

    watcher.until(ready, START_S)
    if process.poll() is not None:
        raise AssertionError(f"the service did not start: {process.communicate()[1]}")
