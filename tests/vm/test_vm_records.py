# SPDX-License-Identifier: Apache-2.0
"""Each set of events, rotated logs and flight recordings: fio's counts, and converted here."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.devices import read_fio_report
from tests.vm.guest_records import EVENT_SETS, TRIGGER_DEPTH
from tests.vm.machine import READ, WRITE, Log, Machine, biotrail


def fios(path: Path) -> dict[str, tuple[int, int]]:
    """I/Os and bytes by fio's own account, of reads and of writes."""
    (job,) = read_fio_report(path)["jobs"]
    return {rw: (job[rw]["total_ios"], job[rw]["io_bytes"]) for rw in ("read", "write")}


def counted(log: Log, dev: int) -> dict[str, tuple[int, int]]:
    """The same by the log's bios that fio queued."""
    if log.trace.context.is_light:
        return counted_by_requests(log, dev)
    mine = (log.bios.dev == dev) & (log.comms == "fio")
    found = {}
    for name, operation in (("read", READ), ("write", WRITE)):
        chosen = mine & (log.bios.opf & 0xFF == operation)
        found[name] = (int(chosen.sum()), int(log.bios.bytes[chosen].sum()))
    return found


def counted_by_requests(log: Log, dev: int) -> dict[str, tuple[int, int]]:
    """The same of a light log, which says how many bios each request had, but not whose."""
    requests = log.requests.take(log.requests.dev == dev)
    bios = requests.bios + requests.others
    found = {}
    for name, operation in (("read", READ), ("write", WRITE)):
        chosen = requests.opf & 0xFF == operation
        found[name] = (int(bios[chosen].sum()), int(requests.bytes[chosen].sum()))
    return found


@pytest.mark.parametrize("events", EVENT_SETS)
def test_each_event_set_has_fios_ios(vm: Machine, events: str, tmp_path: Path) -> None:
    # GIVEN a recording with this set of events
    case = vm.case("event_sets", lossy=True)
    log = Log(case.directory / f"{events}.biotrail")
    if log.lost():
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    # WHEN its bios are counted
    found = counted(log, log.dev(case.told["disk"]))
    # THEN they are fio's, each with its bytes, known exactly, and all have ended
    assert found == fios(case.directory / f"{events}.json")
    assert log.certainties() == {"EXACT"}
    assert log.unfinished() == 0
    # AND the log becomes a trace here
    assert biotrail("convert", log.path, "-o", tmp_path / "log.pftrace") == 0


def test_rotated_files_have_it_all(vm: Machine, tmp_path: Path) -> None:
    # GIVEN a load whose log was written in several files
    case = vm.case("rotated", lossy=True)
    files = sorted(case.directory.glob("log*.biotrail"))
    assert len(files) > 1
    # WHEN each is read by itself
    queued, lost = 0, 0
    for path in files:
        trace = Trace(path)
        for events, _ in trace.events():
            rows = events.rows(Kind.Q)
            queued += int((np.isin(events.opf[rows] & 0xFF, (READ, WRITE))).sum())
        lost += sum(window["count"] for window in trace.reader.losses)
    # THEN together they have each of fio's I/Os once
    if not lost:
        assert queued == sum(ios for ios, _ in fios(case.directory / "log.json").values())
    # AND they become one trace here
    assert biotrail("convert", *files, "-o", tmp_path / "log.pftrace") == 0


def test_a_trigger_writes_what_led_to_it(vm: Machine, tmp_path: Path) -> None:
    # GIVEN a flight recorder with a trigger that the load fires
    case = vm.case("triggered", lossy=True)
    files = sorted(case.directory.glob("log*.biotrail"))
    # WHEN what it wrote is read
    kept = [Trace(path).reader.header["kept"] for path in files]
    # THEN the first file says which trigger it is for, and at which depth
    hit = kept[0]["trigger"]
    assert hit["trigger"] == "depth"
    assert hit["value"] >= TRIGGER_DEPTH
    # AND it and that of the end become traces here
    assert len(files) == 2
    for path in files:
        assert biotrail("convert", path, "-o", tmp_path / f"{path.stem}.pftrace") == 0
