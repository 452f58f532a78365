# SPDX-License-Identifier: Apache-2.0
"""Stacks on their way from the kernel's maps to a log, and to each file of several."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.notes.stacks import NAMELESS, REASONLESS, StackWatch
from biotrail.recorder.output.flight_buffer import FlightBuffer
from biotrail.recorder.output.series import STACKS_PER_NOTE, Series, split_into_notes
from biotrail.recorder.output.sinks import Limit, RotatingLog
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.maps.stack_maps import BUILD_ID_FRAME, FreshStacks, Stacks
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.session.session import record
from biotrail.recorder.symbols.kallsyms import LiveKernelSymbols
from tests.support.chunks_by_hand import HEADER as ROTATED
from tests.support.cli_runner import Cli
from tests.support.fake_probes import FakeProbes, options
from tests.support.stack_logs import READ, bio, clock

NO_USER = np.zeros(0, BUILD_ID_FRAME)


class FakeMaps(FakeProbes):
    """A kernel that gives these stacks, once each."""

    capabilities = Capabilities("core", stacks=True)

    def __init__(self, *kernel: dict[int, list[int]]) -> None:
        super().__init__()
        self.rounds = list(kernel)

    def fresh_stacks(self) -> FreshStacks:
        found = self.rounds.pop(0) if self.rounds else {}
        return FreshStacks({n: np.array(a, np.uint64) for n, a in found.items()}, {}, {})


def test_stacks_are_told_once() -> None:
    # GIVEN addresses that no function has
    watch = StackWatch(Stacks.KERNEL, FakeMaps({5: [16, 32], 9: [48]}, {7: [64]}))
    # WHEN what is new is asked for, three times
    told = [watch.changes() for _ in range(3)]
    # THEN each is told once, by its addresses
    assert told == [
        [{"kernel": {"5": [["", "", 16], ["", "", 32]], "9": [["", "", 48]]}}],
        [{"kernel": {"7": [["", "", 64]]}}],
        [],
    ]
    assert watch.count == 3


def test_stacks_of_waits_have_ids_of_their_own() -> None:
    # GIVEN a kernel with a stack at Q and one of a wait, by the same id
    class Both(FakeMaps):
        def fresh_stacks(self) -> FreshStacks:
            wait = {5: np.array([80], np.uint64)} if self.rounds else {}
            return super().fresh_stacks()._replace(wait=wait)

    # WHEN stacks of waits are recorded, with those at Q or alone
    for wanted in (Stacks.KERNEL, Stacks.NONE):
        watch = StackWatch(wanted, Both({5: [16]}), waits=True)
        (told,) = watch.changes()
        # THEN a note has them apart
        assert told["wait"] == {"5": [["", "", 80]]}
        assert told["kernel"] == {"5": [["", "", 16]]}
        assert watch.count == 2


def test_hidden_symbols_are_said_for_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel that hides its symbols  WHEN stacks at Q, those of waits, or both are recorded
    monkeypatch.setattr(LiveKernelSymbols, "available", False)
    for wanted, waits, told in (
        (Stacks.KERNEL, False, [NAMELESS]),
        (Stacks.NONE, True, [REASONLESS]),
        (Stacks.KERNEL, True, [NAMELESS, REASONLESS]),
        (Stacks.NONE, False, []),
    ):
        # THEN there is a message for each, and none for what is not recorded
        assert StackWatch(wanted, FakeMaps(), waits=waits).nameless() == told


def test_a_backend_without_stacks_is_refused() -> None:
    # GIVEN probes that cannot give stacks  WHEN they are wanted  THEN there is a message
    with pytest.raises(ProbeError, match="core"):
        StackWatch(Stacks.KERNEL, FakeProbes())
    # AND nothing is asked of them where no stacks are wanted
    assert StackWatch(Stacks.NONE, FakeProbes()).changes() == []
    assert not StackWatch(Stacks.NONE, FakeProbes()).due(1 << 62)


def test_a_session_without_such_a_backend_leaves_no_file(tmp_path: Path) -> None:
    # GIVEN a session whose probes cannot give stacks
    path = tmp_path / "x.biotrail"
    # WHEN it is to record stacks  THEN it says so, and there is no file
    with pytest.raises(ProbeError, match="--stacks"):
        record(options(path, stacks=Stacks.KERNEL), probes=FakeProbes())
    assert list(tmp_path.iterdir()) == []


def test_many_stacks_make_several_notes() -> None:
    # GIVEN more stacks than go into a note
    stacks = {("kernel", str(number)): [["f", "", number]] for number in range(STACKS_PER_NOTE + 1)}
    # WHEN they are written  THEN no note is too large, and nothing is missing
    assert [len(note["kernel"]) for note in split_into_notes(stacks)] == [STACKS_PER_NOTE, 1]


def stack_notes(path: str) -> list[dict[str, Any]]:
    return [payload for name, payload in LogReader(path).notes if name == "stacks"]


def test_every_rotated_file_repeats_the_stacks(tmp_path: Path) -> None:
    # GIVEN a rotating log that was told of two stacks in its first file
    series = Series(str(tmp_path / "x.biotrail"), None)
    log = RotatingLog(series, ROTATED, Limit(bytes=1), lambda: [], 1, False)
    log.write_note("stacks", {"kernel": {"5": READ}})
    log.write_note("stacks", {"user": {"5": [["main", "/bin/dd", 1]]}})
    log.rotate()
    # WHEN another follows
    log.write_chunk([Segment(0, 0, 0, b"".join(bio(0, 10, 5, 5)))], clock(6 * 10**12))
    log.close({"reason": "test", "stopped": clock(6 * 10**12)})
    # THEN it has both
    first, second = log.files
    assert len(stack_notes(first)) == 2
    assert stack_notes(second) == [{"kernel": {"5": READ}, "user": {"5": [["main", "/bin/dd", 1]]}}]


def test_a_dump_has_the_stacks(tmp_path: Path) -> None:
    # GIVEN a flight recorder that was told of a stack
    series = Series(str(tmp_path / "x.biotrail"), None)
    log = FlightBuffer(series, ROTATED, Limit(bytes=1 << 20), lambda: [], 1)
    log.write_note("stacks", {"kernel": {"5": READ}})
    log.write_chunk([Segment(0, 0, 0, b"".join(bio(0, 10, 5)))], clock(6 * 10**12))
    # WHEN it ends
    log.close({"reason": "test", "stopped": clock(6 * 10**12)})
    # THEN its file has it
    assert stack_notes(log.files[0]) == [{"kernel": {"5": READ}}]


@pytest.mark.parametrize(
    "arguments", [["--user-stacks"], ["--stacks", "--backend", "bcc"]], ids=["alone", "bcc"]
)
def test_wrong_usage(arguments: list[str], cli: Cli, tmp_path: Path) -> None:
    # GIVEN options that do not fit  WHEN they are given  THEN it is wrong usage, and said
    done = cli("record", *arguments, "-o", tmp_path / "x.biotrail")
    assert done.status == 2
    assert "--stacks" in done.err
    assert list(tmp_path.iterdir()) == []
