# SPDX-License-Identifier: Apache-2.0
"""`biotrail record --backend bcc` as a user runs it, and what is made of its log."""

import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.schema.records import Kind
from tests.support.bcc_recording import needs_bcc
from tests.support.core_decoder import decode
from tests.support.core_recording import Recording
from tests.support.record_command import (
    biotrail,
    environment,
    fio_command,
    in_json,
    read,
    recorder,
    stop,
)

__all__ = ["needs_bcc"]

pytestmark = pytest.mark.usefixtures("needs_bcc")


def test_a_log_has_lifecycles_and_says_what_it_lacks(fio, loop_device, completions, tmp_path):
    # GIVEN a recording of a known load by bcc
    log, truth = tmp_path / "log.biotrail", completions(loop_device.dev)
    load = fio_command(loop_device.path, tmp_path / "fio", rw="randread", bs="4k", size="4m")
    biotrail("record", "--backend", "bcc", "-d", loop_device.path, "-o", log, "--", *load)
    # WHEN it is read, without saying how
    found = read(log)
    # THEN every I/O is one whole lifecycle, associated by its sectors
    bios = found.by("fio").take(found.by("fio").bytes > 0)
    assert found.trace.by_intervals
    skipped = sum((found.trace.reader.end or {})["skipped"].values())
    assert 1024 - skipped <= len(bios) <= 1024
    whole = (bios.complete > bios.issue) & (bios.issue > bios.queue)
    assert whole.sum() >= 1024 - skipped - len(truth.unseen_by(log))
    certain = {Certainty(c).name for c in np.unique(bios.certainty[whole])}
    assert certain <= {"INTERVAL", "AMBIGUOUS", *(["LOST"] if skipped else [])}
    # AND info names what the tracepoints do not tell
    said = biotrail("info", log).stdout
    assert "backend bcc" in said
    told = next(line for line in said.splitlines() if line.startswith("not told"))
    assert all(name in told for name in ("bio (", "rq (", "tag (", "cgroup (Q", "part (Q"))
    header = in_json("info", log)["header"]
    assert header["absent"]["C"] == ["rq", "bio"]
    # AND it becomes a Perfetto trace
    biotrail("convert", log, "-o", tmp_path / "log.pftrace")
    assert (tmp_path / "log.pftrace").stat().st_size > 10_000


def test_everything_and_no_filter(fio, loop_device, tmp_path):
    # GIVEN a recording of all events of all devices
    log = tmp_path / "log.biotrail"
    load = fio_command(loop_device.path, tmp_path / "fio", rw="write", bs="64k", size="1m")
    biotrail("record", "--backend", "bcc", "--events", "all", "-o", log, "--", *load)
    # WHEN it is read THEN plugs are there too, and the account names every event
    found = read(log)
    letters = found.account.by_letter()
    assert letters["Q"] >= 16
    assert letters["P"] >= 1
    assert sum(found.account.events.values()) == found.account.total
    assert found.trace.reader.header["events"]["missing"] == []


def test_full_rings_are_counted(fio, loop_device):
    # GIVEN small rings that nobody drains
    with BccProbes(ProbeConfig("minimal", [(loop_device.dev, 0)], 64 << 10)) as probes:
        probes.attach()
        # WHEN more I/O is done than they hold
        fio(loop_device.path, rw="randread", bs="4k", size="16m", ioengine="psync")
        probes.detach()
        lost = probes.lost().sum(axis=(0, 1))
        record = Recording(probes)
        record.segments = probes.drain()
        skipped = {p.letter: p.recursion_misses for p in probes.programs()}
    # THEN what was written and what was counted as lost add up
    events = decode(record.segments)
    assert lost[Kind.Q] > 0
    for kind, letter in ((Kind.Q, "Q"), (Kind.D, "D")):
        missing = 4096 - len(events.of(kind)) - int(lost[kind])
        assert 0 <= missing <= skipped[letter]


def test_a_killed_recorder_leaves_nothing_attached(fio, loop_device, tmp_path):
    # GIVEN a recorder that is killed
    log = tmp_path / "log.biotrail"
    options = ("--backend", "bcc", "-d", loop_device.path, "--level", "0")
    with recorder(*options, "-o", log) as process:
        fio(loop_device.path, rw="randread", bs="4k", size="1m", ioengine="psync")
        stop(process, signal.SIGKILL)
    # WHEN processes are looked for THEN none of its own is left to hold the programs
    left = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True)
    ours = [line for line in left.stdout.splitlines() if line.split()[0] == str(process.pid)]
    assert ours == []
    # AND the log can be read
    assert LogReader(log).header["backend"] == "bcc"


def test_headers_that_are_not_there(tmp_path):
    # GIVEN a place for headers that holds none
    (tmp_path / "empty").mkdir()
    elsewhere = environment(BCC_KERNEL_SOURCE=str(tmp_path / "empty"))
    # WHEN recording is tried THEN the message says what to install, and nothing is left behind
    log = tmp_path / "log"
    done = biotrail("record", "--backend", "bcc", "-o", log, status=1, env=elsewhere)
    assert "linux-headers-" in done.stderr
    assert "Traceback" not in done.stderr
    assert not log.exists()


def debians() -> list[Path]:
    """Both directories of one kernel's headers that are installed here; none: there are none."""
    for build in sorted(Path("/usr/src").glob("linux-headers-*")):
        if (build / "include/generated").exists():
            return [build, bcc_headers.resolve(build).directory or build]
    return []


@pytest.mark.parametrize("which", ["unnamed", "build", "common"])
def test_a_half_of_debians_headers_will_do(which: str, tmp_path: Path) -> None:
    # GIVEN bcc, and a kernel's headers as Debian has them
    if bcc_child.find_bcc() is None:
        pytest.skip("bcc: python3-bpfcc is not installed")
    places = debians()
    if not places:
        pytest.skip("bcc: no kernel headers are installed")
    named = {"unnamed": "", "build": str(places[0]), "common": str(places[1])}[which]
    env = {name: value for name, value in environment().items() if name != bcc_headers.NAMED}
    env |= {bcc_headers.NAMED: named} if named else {}
    # WHEN something is recorded with either half named, or none
    log = tmp_path / "log.biotrail"
    biotrail("record", "--backend", "bcc", "-o", log, "--", "sync", env=env)
    # THEN there is a log
    assert LogReader(log).header["backend"] == "bcc"
