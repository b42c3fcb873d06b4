"""`holdfast webhooks`, and deliveries by worker processes."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.job import State
from holdfast.webhooks import Delivery, verify
from holdfast.webhooks.definition import QUEUE

SECRET = "whsec_of-the-tests-alone"


class Receiver:
    """An HTTP server in a thread. It keeps what it believes."""

    def __init__(self, secret_file: Path) -> None:
        self.believed: list[Delivery] = []
        self.stalls = 0
        self.over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.believed.append(verify(SECRET, dict(self.headers), body))
                if receiver.stalls:
                    receiver.stalls -= 1
                    receiver.over.wait(60)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        url = f"http://127.0.0.1:{self.server.server_port}/in"
        secret_file.write_text(SECRET + "\n")
        self.options = ("--url", url, "--secret-file", str(secret_file))

    def about(self) -> list[str]:
        return [one.event.get("job_id", one.event["kind"]) for one in self.believed]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path / "secret")
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.over.set()
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform allows what these tests call; workers inherit it."""
    monkeypatch.setenv("HOLDFAST_WEBHOOKS_ALLOW", "127.0.0.1")


def printed(run: Any, *arguments: str) -> Any:
    found = run("webhooks", *arguments, "--tenant", "acme", "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


# -- deliveries by processes -----------------------------------------------------------------------


@pytest.mark.usefixtures("loopback")
def test_a_worker_delivers_what_it_did(
    start: Any, shelf: Any, run: Any, until: Any, receiver: Receiver
) -> None:
    """From the command to the receiver: set, worked, made by the upkeep, sent, believed."""
    printed(run, "set", "billing", *receiver.options, "--kinds", "completed")
    shelf.add("one")
    shelf.add("two", tenant="globex")

    worker = start("worker", "--app", "shop:app")

    until(lambda: "one" in receiver.about())
    printed(run, "test", "billing")
    until(lambda: "ping" in receiver.about())
    assert "two" not in receiver.about()
    assert receiver.believed[0].event["type"] == "greet"
    assert SECRET not in worker.said()


@pytest.mark.usefixtures("loopback")
def test_a_killed_worker_loses_no_delivery(
    start: Any, shelf: Any, run: Any, until: Any, receiver: Receiver
) -> None:
    """P4: another one sends it again, with the id by which the receiver knows it."""
    printed(run, "set", "billing", *receiver.options, "--kinds", "enqueued")
    receiver.stalls = 1
    shelf.add("one", queue="of-nobody")
    first = start("worker", "--app", "shop:app", "--lease", "1")
    until(lambda: receiver.believed)

    first.signal(signal.SIGKILL)
    first.ended()
    start("worker", "--app", "shop:app", "--lease", "1")

    until(lambda: len(receiver.believed) == 2)
    assert len({one.id for one in receiver.believed}) == 1
    deliveries = [job for job in shelf.all() if job.queue == QUEUE]
    assert len(deliveries) == 1
    until(lambda: shelf.get(deliveries[0].id).state is State.COMPLETED)


# -- commands --------------------------------------------------------------------------------------


def test_a_webhook_goes_through_its_commands(run: Any, tmp_path: Path) -> None:
    """Set, shown, listed, paused, resumed, rotated, tested and deleted."""
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer of-mine\n\nX-Shop: 7\n")
    options = ("--kinds", "completed,failed", "--types", "send", "--queues", "mail")
    more = ("--include", "error", "--attempts", "5", "--pause-after", "2h")
    made = printed(
        run, "set", "billing", "--url", "https://r.example/x", *options, *more,
        "--headers-file", str(headers), "--author", "ann", "--why", "new shop",
    )  # fmt: skip
    assert made["secret"].startswith("whsec_")

    shown = printed(run, "show", "billing")
    assert "secret" not in shown
    assert (shown["kinds"], shown["types"], shown["queues"]) == (
        ["completed", "failed"], ["send"], ["mail"],
    )  # fmt: skip
    assert (shown["include"], shown["attempts"], shown["pause_after"]) == (["error"], 5, 7200.0)
    assert shown["headers"] == ["authorization", "x-shop"]
    assert shown["changes"][0]["author"] == "ann"
    text = run("webhooks", "show", "billing", "--tenant", "acme").output
    assert "of-mine" not in text
    assert "set by ann: new shop" in text

    printed(run, "pause", "billing", "their data centre moves", "--author", "ann")
    assert "paused by ann: their data" in run("webhooks", "list").output
    assert run("webhooks", "test", "billing", "--tenant", "acme").exit_code == 1
    assert printed(run, "resume", "billing", "--skip")["paused"] is None
    rotated = run("webhooks", "rotate", "billing", "--tenant", "acme", "--keep", "1h")
    assert "secret: whsec_" in rotated.stdout
    assert made["secret"] not in rotated.output
    id = printed(run, "test", "billing")["id"]
    [delivery] = printed(run, "deliveries", "billing")["deliveries"]
    assert (delivery["id"], delivery["state"]) == (id, "enqueued")
    assert id in run("webhooks", "deliveries", "billing", "--tenant", "acme").output
    cleared = printed(run, "set", "billing", "--types", "*", "--include", "*")
    assert (cleared["types"], cleared["include"], cleared["attempts"]) == ([], [], 5)
    printed(run, "delete", "billing", "--yes")
    assert run("webhooks", "list").output == "no webhooks\n"


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("set", "x"), 1, "url: is missing"),
        (("set", "x", "--url", "http://169.254.169.254/"), 1, "no public address"),
        (("set", "x", "--url", "https://r.example/", "--kinds", "complete"), 1, "'completed'"),
        (("set", "x", "--url", "https://r.example/", "--kinds", "configured"), 1, "kinds"),
        (("set", "x", "--url", "https://r.example/", "--queues", "holdfast.ticks"), 1, "reserved"),
        (("set", "x", "--url", "https://r.example/", "--expect", "3"), 1, "STALE_SETTING"),
        (("show", "x"), 3, "WEBHOOK_NOT_FOUND"),
        (("rotate", "x"), 3, "WEBHOOK_NOT_FOUND"),
        (("delete", "x"), 2, "--yes"),
    ],
)
def test_a_wrong_command_is_told_what_is_wrong(
    run: Any, arguments: tuple[str, ...], code: int, why: str
) -> None:
    """With the exit code that scripts look at."""
    found = run("webhooks", *arguments, "--tenant", "acme")

    assert found.exit_code == code
    assert why in found.output


def test_a_wrong_file_is_told_without_its_text(run: Any, tmp_path: Path) -> None:
    """Files hold secrets."""
    file = tmp_path / "file"
    file.write_text("of-mine")
    for option in ("--secret-file", "--headers-file"):
        found = run(
            "webhooks", "set", "x", "--tenant", "acme", "--url", "https://r.example/",
            option, str(file),
        )  # fmt: skip
        assert found.exit_code == 1
        assert "of-mine" not in found.output
