# SPDX-License-Identifier: Apache-2.0
"""Files and stacks on their way to a log, and to each file of several."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.log.names import Names, file_slot
from biotrail.recorder.notes.hotplug import MountWatch
from biotrail.recorder.notes.stacks import NAMELESS, REASONLESS, StackWatch
from biotrail.recorder.output.series import STACKS_PER_NOTE, Series, split_into_notes
from biotrail.recorder.output.sinks import FlightBuffer, Limit, RotatingLog
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.file_ways import Files, files_of
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import schema
from biotrail.recorder.session.session import record
from biotrail.recorder.symbols.kallsyms import KernelSymbols
from tests.support.chunks_by_hand import HEADER as PLAIN
from tests.support.chunks_by_hand import name_records
from tests.support.fake_probes import FakeProbes, options
from tests.support.file_logs import MOUNTS, bio, names, paths_of
from tests.support.stack_logs import DEV, READ, START, clock

HEADER = {**PLAIN, "devices": [{"dev": DEV, "name": "vda"}], "schema": schema(), "files": {}}


def segment(*records: bytes) -> Segment:
    return Segment(0, 0, 0, b"".join(records))


def learned(*records: bytes) -> list[bytes]:
    """Components of the names that a later file begins with."""
    kept = Names()
    kept.update(name_records([segment(*records)]))
    data = b"".join(one.data for one in kept.segments(START))
    return [data[at + 28 : at + 64].rstrip(b"\0") for at in range(0, len(data), 64)]


def test_whole_and_newest_names_are_repeated() -> None:
    # GIVEN the names of two files, and a path that found no room in the ring
    told = [*names(START, 12, b"db", b"table"), *names(START, 13, b"wal")]
    torn = names(START + 1, 14, b"dir", b"torn", whole=False)
    # WHEN they are learnt  THEN the whole ones are told again
    assert learned(*told, *torn) == [b"table", b"db", b"wal"]
    # AND also where what was torn stands right before, or lacks its beginning
    assert learned(*torn, *told) == [b"table", b"db", b"wal"]
    assert learned(*names(START, 12, b"db", b"table")[1:]) == []
    # GIVEN two files that share a slot of the kernel's table
    other = next(n for n in range(13, 1 << 20) if file_slot(n, DEV) == file_slot(12, DEV))
    # WHEN both were told  THEN the newer one is the one that the kernel will not tell again
    first, second = names(START, 12, b"first"), names(START + 1, other, b"second")
    assert learned(*first, *second) == [b"second"]


def test_every_rotated_file_names_its_files_and_stacks(tmp_path: Path) -> None:
    # GIVEN a rotating log that was told a file's names, mounts and stacks in its first file alone
    series = Series(str(tmp_path / "x.biotrail"), None)
    log = RotatingLog(series, HEADER, Limit(bytes=1), lambda: [], 1, False)
    log.write_note("mounts", MOUNTS)
    log.write_note("stacks", {"kernel": {"5": READ}})
    log.write_note("stacks", {"user": {"5": [["main", "/bin/dd", 1]]}})
    log.write_chunk(
        [segment(*names(START, 12, b"db", b"table"), *bio(0, 12))], clock(START + 10**7)
    )
    for number in (20, 40):
        # WHEN others follow
        log.rotate()
        at = START + (number + 10) * 10**6
        log.write_chunk([Segment(0, 0, 4096, b"".join(bio(number, 12)))], clock(at))
    log.close({"reason": "test", "stopped": clock(START + 10**8)})
    # THEN each names its bio's file, and says that it tells files
    first, *others = log.series.files
    assert len(others) == 2
    for path in log.series.files:
        assert paths_of(Trace(path)) == ["/srv/db/table"]
        assert LogReader(path).header["files"] == {}
    # AND each later one has all stacks
    assert len(stack_notes(first)) == 2
    for path in others:
        assert stack_notes(path) == [
            {"kernel": {"5": READ}, "user": {"5": [["main", "/bin/dd", 1]]}}
        ]


def test_a_dump_names_its_files_and_stacks(tmp_path: Path) -> None:
    # GIVEN a flight recorder that has let go of the chunk with a file's names
    series = Series(str(tmp_path / "x.biotrail"), None)
    log = FlightBuffer(series, HEADER, Limit(bytes=1), lambda: [], 1)
    log.write_note("mounts", MOUNTS)
    log.write_note("stacks", {"kernel": {"5": READ}})
    log.write_chunk([segment(*names(START, 12, b"wal"), *bio(0, 12))], clock(START + 10**7))
    log.write_chunk([Segment(0, 0, 4096, b"".join(bio(20, 12)))], clock(START + 3 * 10**7))
    # WHEN it ends  THEN its dump has them, and the stacks that it was told of
    log.close({"reason": "test", "stopped": clock(START + 10**8)})
    assert paths_of(Trace(log.series.files[0])) == ["/srv/wal"]
    assert stack_notes(log.series.files[0]) == [{"kernel": {"5": READ}}]


def test_mounts_are_told_when_they_are_new(tmp_path: Path) -> None:
    # GIVEN a disk of which parts are mounted, too, a subvolume, and a file system of no device
    (tmp_path / "self").mkdir()
    (tmp_path / "filesystems").write_text("nodev\ttmpfs\n\text4\n\tbtrfs\n")
    info = tmp_path / "self" / "mountinfo"
    first = (
        "35 34 254:1 /var /part rw - ext4 /dev/vda1 rw\n"
        "36 35 254:1 / / rw - ext4 /dev/vda1 rw\n"
        "37 36 254:1 /var /again rw - ext4 /dev/vda1 rw\n"
        "38 36 0:44 /@home /with\\040space rw - btrfs /dev/vdb rw\n"
        "39 36 0:45 / /tmp rw - tmpfs tmpfs rw\n"
        "41 36 7:9 / /a\r\x85b\u2028 rw - ext4 /dev/loop9 rw\n"
    )
    info.write_text(first, newline="\n")
    watch = MountWatch(tmp_path)
    # WHEN and THEN what is mounted is told once
    assert watch.changes() == {
        str(254 << 20 | 1): [["/", "/"]],
        "44": [["/@home", "/with space"]],
        str(7 << 20 | 9): [["/", "/a\r\x85b\u2028"]],
    }
    assert watch.changes() is None
    # AND what comes is told alone
    info.write_text(first + "40 36 7:1 / /mnt rw - ext4 /dev/loop1 rw\n", newline="\n")
    assert watch.changes() == {str(7 << 20 | 1): [["/", "/mnt"]]}
    # AND what goes is kept: its files were named while it was there
    info.write_text(first, newline="\n")
    assert watch.changes() is None
    # AND where calls' files are recorded, file systems of no device are told, too
    assert (MountWatch(tmp_path, of_calls=True).changes() or {})["45"] == [["/", "/tmp"]]


class WithFiles(FakeProbes):
    """Probes that tell files, or say why not."""

    files = Files(True)


def test_a_session_tells_files_in_its_header(tmp_path: Path) -> None:
    # GIVEN probes that tell files, and others of a kernel that cannot
    said: list[str] = []
    cannot = WithFiles()
    cannot.files = Files(lacking="files are not recorded: this kernel has no page.mapping")
    # WHEN they are asked for, and not
    for name, probes, wanted in (
        ("with", WithFiles(), True),
        ("cannot", cannot, True),
        ("without", WithFiles(), False),
    ):
        target = options(tmp_path / name, files=wanted, max_events=1)
        record(target, lambda status: said.append(status.note), probes=probes)
    # THEN the header says which log tells them, and what cannot be is said
    headers = {name: LogReader(tmp_path / name).header for name in ("with", "cannot", "without")}
    assert [name for name, header in headers.items() if "files" in header] == ["with"]
    assert [note for note in said if "page.mapping" in note] == [cannot.files.lacking]
    notes = [name for name, _ in _read(tmp_path / "with").notes]
    assert "mounts" in notes


def _read(path: Path) -> LogReader:
    reader = LogReader(path)
    for _ in reader.chunks():
        pass
    return reader


def test_parts_that_cannot_tell_files_or_stacks_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the bcc backend, with the rights that it needs
    monkeypatch.setattr("biotrail.recorder.probes.bcc.probes.require_rights", lambda: None)
    # WHEN it is to record files, stacks or the path  THEN it says so before it looks further
    for config, message in (
        (ProbeConfig(files=True), "bcc backend records no files"),
        (
            ProbeConfig(stacks=Stacks.KERNEL),
            "records no stacks: use --backend core, or no --stacks",
        ),
        (ProbeConfig(path=frozenset({"call"})), "no path: use --backend core, or no --path"),
    ):
        with pytest.raises(ProbeError, match=message):
            BccProbes(config).open()
    # AND nothing is asked of them where no stacks are wanted
    assert StackWatch(Stacks.NONE, FakeProbes()).changes() == []
    assert not StackWatch(Stacks.NONE, FakeProbes()).due(1 << 62)


class OtherBtf:
    """A kernel without these members."""

    def __init__(self, *missing: tuple[str, str]) -> None:
        self._missing = missing

    def has_member(self, name: str, member: str) -> bool:
        return (name, member) not in self._missing


def test_what_kernels_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN kernels with all members, without one, and without iomap's direct I/O
    monkeypatch.setattr("biotrail.recorder.probes.file_ways.address_of", lambda name: 4096)
    whole, without = OtherBtf(), OtherBtf(("page", "mapping"))
    # WHEN they are asked  THEN what is missing is named, or only direct I/O is left out
    assert files_of(whole) == Files(True, 4096)  # type: ignore[arg-type]
    told = files_of(without)  # type: ignore[arg-type]
    assert not told.recorded
    assert "no page.mapping" in told.lacking
    other = OtherBtf(("iomap_dio", "iocb"))
    assert files_of(other) == Files(True, 0)  # type: ignore[arg-type]


# Stacks on their way from the kernel's maps to a log, and to each file of several.


class FakeMaps(FakeProbes):
    """A kernel that gives these stacks, once each."""

    def __init__(self, *kernel: dict[int, list[int]]) -> None:
        super().__init__()
        self.rounds = list(kernel)

    def fresh_stacks(self) -> dict[str, Any]:
        found = self.rounds.pop(0) if self.rounds else {}
        return {"kernel": {n: np.array(a, np.uint64) for n, a in found.items()}}


def test_stacks_are_told_once_in_notes_of_bounded_size() -> None:
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

    # GIVEN a kernel with a stack at Q and one of a wait, by the same id
    class Both(FakeMaps):
        def fresh_stacks(self) -> dict[str, Any]:
            wait = {5: np.array([80], np.uint64)} if self.rounds else {}
            return super().fresh_stacks() | {"wait": wait}

    # WHEN stacks of waits are recorded, with those at Q or alone
    for wanted in (Stacks.KERNEL, Stacks.NONE):
        watch = StackWatch(wanted, Both({5: [16]}), waits=True)
        (told,) = watch.changes()
        # THEN a note has them apart
        assert told["wait"] == {"5": [["", "", 80]]}
        assert told["kernel"] == {"5": [["", "", 16]]}
    # GIVEN more stacks than go into a note
    stacks = {("kernel", str(number)): [["f", "", number]] for number in range(STACKS_PER_NOTE + 1)}
    # WHEN they are written  THEN no note is too large, and nothing is missing
    assert [len(note["kernel"]) for note in split_into_notes(stacks)] == [STACKS_PER_NOTE, 1]


def test_hidden_symbols_are_said_for_what_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel that hides its symbols  WHEN stacks at Q, those of waits, or both are recorded
    monkeypatch.setattr(KernelSymbols, "__len__", lambda _: 0)
    for wanted, waits, told in (
        (Stacks.KERNEL, False, [NAMELESS]),
        (Stacks.NONE, True, [REASONLESS]),
        (Stacks.KERNEL, True, [NAMELESS, REASONLESS]),
        (Stacks.NONE, False, []),
    ):
        # THEN there is a message for each, and none for what is not recorded
        assert StackWatch(wanted, FakeMaps(), waits=waits).nameless() == told


def stack_notes(path: str) -> list[dict[str, Any]]:
    return [payload for name, payload in LogReader(path).notes if name == "stacks"]
