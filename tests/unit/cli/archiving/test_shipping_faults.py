# SPDX-License-Identifier: Apache-2.0
"""Whose fault it is that a log is not shipped: its own, or the destination's."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from biotrail.cli.archiving import destination, shipping, watched
from biotrail.cli.archiving.destination import credentials
from biotrail.recorder.schema.errors import OutputError
from tests.support.cli_runner import Cli, Done
from tests.support.record_command import wait_until
from tests.support.shipped_logs import archive_name, write_log

Put = Callable[[destination._Directory, Path, str], None]


class Place:
    """Logs with different faults, a destination, and the command between them."""

    def __init__(self, directory: Path, cli: Cli) -> None:
        self.cli = cli
        self.logs, self.to = directory / "logs", directory / "to"
        self.logs.mkdir()
        self.to.mkdir()

    def log(self, name: str, number: int, host: str = "db7") -> Path:
        return write_log(self.logs / f"{name}.biotrail", number, host=host)

    def ship(self) -> Done:
        return self.cli("archive", "--watch", self.logs, "--to", self.to, "--once")

    def left(self) -> list[str]:
        return sorted(path.name.removesuffix(".biotrail") for path in self.logs.glob("*.biotrail"))

    def listed(self) -> str:
        path = self.logs / ".shipping" / "not-shipped"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, Cli(capsys))


@pytest.mark.parametrize(
    ("name", "host", "said"),
    [
        ("a", "x" * 300, "File name too long at the destination: host=xxx"),
        ("a" * 240, "db7", "File name too long at the destination: aaa"),
        ("a", "数据库" * 20, "File name too long at the destination: host=%E6"),
    ],
)
def test_a_name_that_is_too_long_is_its_logs_fault(
    place: Place, name: str, host: str, said: str
) -> None:
    # GIVEN a log whose host or own name has no room at the destination, before and after others
    place.log(name, 1, host)
    place.log("A", 2)
    place.log("z", 3)
    # WHEN they are shipped
    done = place.ship()
    # THEN it is told once, in one line, and listed; the others are shipped
    assert done.status == 1
    lines = [line for line in done.err.splitlines() if "not shipped: " in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert "bytes); its host's and its own name make that: give the log a shorter" in lines[0]
    listed = place.logs / ".shipping" / "not-shipped"
    assert f"2 logs shipped, 1 not shipped (listed in {listed})" in done.err
    assert (place.left(), place.listed().count("\n")) == ([name], 1)
    # AND WHEN it got another name, or was taken away, nothing is left to tell
    (place.logs / f"{name}.biotrail").unlink()
    assert place.ship().status == 0
    assert place.listed() == ""


def test_a_log_that_cannot_be_read_is_its_own_fault(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log that may not be opened
    place.log("a", 1)
    place.log("b", 2)
    real = watched.folders.open_regular

    def refuse(at: int, name: str, shown: str) -> object:
        if name.startswith("a."):
            raise PermissionError(13, "Permission denied")
        return real(at, name, shown)

    monkeypatch.setattr(watched.folders, "open_regular", refuse)
    # WHEN the directory is shipped THEN that one stays, and is told
    done = place.ship()
    assert done.status == 1
    assert "a.biotrail: cannot be opened: Permission denied; give the shipper's" in done.err
    assert place.left() == ["a"]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of logs that the destination refuses, for a reason that tells nothing."""
    refused: set[str] = set()
    real = destination._Directory.put

    def put(self: destination._Directory, staged: Path, name: str) -> None:
        if os.path.basename(name).partition("-")[0] in refused:
            raise OutputError(f"cannot write {self.shown(name)}: Remote I/O error")
        real(self, staged, name)

    monkeypatch.setattr(destination._Directory, "put", put)
    return refused


def test_what_only_one_log_meets_is_its_own_fault(place: Place, refusing: set[str]) -> None:
    # GIVEN a destination that refuses one log, the first of three
    for number, name in enumerate("abc"):
        place.log(name, number)
    refusing.add("a")
    # WHEN they are shipped THEN the others go on, and that one is told once
    done = place.ship()
    assert done.status == 1
    assert done.err.count("Remote I/O error") == 1
    assert "a.biotrail: not shipped: cannot write" in done.err
    assert "2 logs shipped, 1 not shipped" in done.err
    assert place.left() == ["a"]


def test_what_all_logs_meet_is_the_destinations_fault(place: Place, refusing: set[str]) -> None:
    # GIVEN a destination that refuses every log
    for number, name in enumerate("abc"):
        place.log(name, number)
        refusing.add(name)
    # WHEN they are shipped THEN it is one message, and none is set apart
    done = place.ship()
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "Remote I/O error" in done.err
    assert (place.left(), place.listed()) == (["a", "b", "c"], "")


def test_a_refused_log_is_tried_again_behind_the_others(
    place: Place,
    refusing: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # GIVEN a watcher, and a destination that refuses one of the logs for a while
    monkeypatch.setattr(shipping, "LOOK_SECONDS", 0.01)
    place.log("a", 1)
    place.log("b", 2)
    refusing.add("a")
    stop = threading.Event()
    asked = shipping.Shipping(str(place.logs), str(place.to), 1, False, False, False, False)
    logs = shipping.hold_logs(asked.directory)
    with shipping.locked(logs) as staging:
        to = destination.destination(asked.to)
        shipper = shipping.Shipper(logs, staging, to, 1, False, False)
        watcher = shipping._Watching(asked, logs, shipper, stop)
        thread = threading.Thread(target=watcher.go_on)
        thread.start()
        try:
            wait_until(lambda: place.listed() != "", "the log is set apart")
            assert place.left() == ["a"]
            # WHEN more logs come, and it is refused again and again
            place.log("c", 3)
            wait_until(lambda: place.left() == ["a"], "the third is shipped")
            # AND the destination takes it
            refusing.clear()
            # THEN it is shipped in the end, was told once, and the list is gone
            wait_until(lambda: place.left() == [], "all are shipped")
        finally:
            stop.set()
            thread.join()
    said = capsys.readouterr().err
    assert said.count("Remote I/O error; the others go on, it is tried again\n") == 1
    assert said.count("Remote I/O error") == 1
    assert "3 logs shipped\n" in said
    assert place.listed() == ""
    assert watcher.failed == 0
    assert (place.to / archive_name(1, "a")).exists()


def test_a_destination_that_fills_up_sets_nothing_apart_for_good(
    place: Place, refusing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a destination with room for one log
    for number, name in enumerate("abc"):
        place.log(name, number)
    refusing.update("bc")
    # WHEN they are shipped THEN it is the destination's fault
    done = place.ship()
    assert done.status == 1
    assert place.left() == ["b", "c"]
    # AND WHEN there is room THEN all are shipped
    refusing.clear()
    assert place.ship().status == 0
    assert place.left() == []


def test_credentials_are_found_as_other_tools_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file of credentials, and another account in the environment
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    shared = tmp_path / "credentials"
    shared.write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B%\n"
        "[ship]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    # WHEN they are asked for THEN those of the profile count, and the environment's before them
    assert credentials() == ("A", "B%", "")
    monkeypatch.setenv("AWS_PROFILE", "ship")
    assert credentials() == ("C", "D", "E")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "F")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "G")
    assert credentials() == ("F", "G", "")
