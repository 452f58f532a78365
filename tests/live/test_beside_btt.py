# SPDX-License-Identifier: Apache-2.0
"""One load recorded twice, by biotrail and by the kernel's blk tracer, beside btt's tables.

Where btt is right, lifecycles give its numbers to the nanosecond. Where it is not, each bio
that makes a difference has the rule of btt's behind it (`btt_rules`).
"""

from pathlib import Path

import pytest

from biotrail.converters.outputs.blktrace import convert as blktrace
from biotrail.converters.pipeline import Trace
from tests.reference.btt_rules import STAGES, figures, ours, printed
from tests.support import record_command
from tests.support.blk_tracer import Fio, clean_load, traced
from tests.support.btt_tables import (
    associated,
    blkparse_binary,
    btt,
    check_report,
    check_sizes,
    check_table,
)
from tests.support.devices import LoopDevice
from tests.support.kernel_completions import done_again

pytestmark = pytest.mark.xdist_group("the blk tracer")


def hard_load(fio: Fio, path: str) -> None:
    """Everything that btt gets wrong, each in a place of its own."""
    batch = {"ioengine": "libaio", "iodepth": 8, "iodepth_batch": 8}
    fio(path, rw="randrw", bsrange="512-32k", size="4m", ioengine="io_uring", iodepth=8)
    fio(path, rw="read", bs="2m", size="6m", offset="8m")
    fio(path, rw="write:-8k", bs="4k", size="2m", offset="16m", number_ios=64, **batch)
    fio(path, rw="trim", bs="256k", size="4m", offset="24m", number_ios=8)
    fio(path, rw="write", bs="4k", size="2m", offset="32m", direct=False, fsync=64)
    same = {"bs": "4k", "size": "64k", "offset": "40m", "norandommap": True, "io_size": "8m"}
    fio(path, rw="randread", ioengine="io_uring", iodepth=32, **same)
    fio(path, rw="write", bs="4k", size="256k", offset="48m", sync=1)


@done_again
def test_a_load_that_btt_can_follow_gives_its_table_from_either_recording(
    needs_bpf: None, loop_device: LoopDevice, fio: Fio, tmp_path: Path
):
    # GIVEN one load, recorded by biotrail and by the kernel's tracer at once
    log = tmp_path / "disk.biotrail"

    def load() -> None:
        with record_command.recorded("-o", log, "-d", loop_device.path):
            clean_load(fio, loop_device.path)

    prefix = traced(loop_device, tmp_path, load)
    # WHEN the tracer's files are imported and associated by intervals
    imported = associated(prefix)
    report = btt(blkparse_binary(prefix, tmp_path / "tracer.bin"))
    # THEN counts, least, average and most of each stage are btt's, to the nanosecond
    check_table(imported, report)
    check_sizes(imported, report)
    check_report(prefix, report)
    # AND WHEN the log is associated by identity, and btt is given what we export of it
    recorded = associated(log)
    trace = Trace(log)
    (tmp_path / "export").mkdir()
    summary = blktrace.write(trace.events(), trace.context, tmp_path / "export")
    (export,) = summary.sets.values()
    report = btt(blkparse_binary(export, tmp_path / "export.bin"))
    # THEN the same holds
    check_table(recorded, report)
    check_sizes(recorded, report)
    check_report(log, report)
    # AND both recordings hold the same I/O, which went the same way
    # (but for ends that no program saw: the kernel runs none inside itself)
    unseen = int(((recorded.bios.complete < 0) & (recorded.bios.bytes > 0)).sum())
    for stage in STAGES:
        less = unseen if stage in ("D2C", "Q2C") else 0
        seen = len(ours(imported.bios)[stage]) - less
        assert len(ours(recorded.bios)[stage]) == seen, stage
    both = [
        sorted(zip(w.bios.sector.tolist(), w.bios.bytes.tolist(), strict=True))
        for w in (recorded, imported)
    ]
    assert both[0] == both[1]
    assert len(both[0]) > 5000


RULES = {
    "a split Q is contained in no D or C",
    "a second Q at a sector takes the first one's place",
    "an insert is matched by its first sector, which a front merge moved",
    "an end without data is dropped: a flush sequence ends with its data",
}


def test_every_difference_from_btt_has_a_rule_of_btts(
    loop_device: LoopDevice, fio: Fio, tmp_path: Path
):
    # GIVEN a load with all that btt gets wrong
    prefix = traced(loop_device, tmp_path, lambda: hard_load(fio, loop_device.path))
    # WHEN it is associated by intervals, and btt's rules are followed on the same events
    whole = associated(prefix)
    report = btt(blkparse_binary(prefix, tmp_path / "tracer.bin"))
    table, found = printed(report), whole.compare()
    # THEN the rules are btt's: they give its table
    for stage in STAGES:
        by_rule = figures(value for _, value in whole.rules.values[stage])
        assert by_rule == table.get(stage), stage
    # AND each bio's time is btt's, or one of the rules explains why not
    print()
    for stage in STAGES:
        print(f"{stage}  {found.agree[stage]:6d} as btt has it")
        for rule, number in found.rules[stage].most_common():
            print(f"     {number:6d} {rule}")
    assert found.unexplained == []
    assert {rule for rules in found.rules.values() for rule in rules} >= RULES
