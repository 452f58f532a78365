# SPDX-License-Identifier: Apache-2.0
"""Two recorders at once, and a rotated one: what their logs are together."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from biotrail.cli.options.recordings import open_recordings
from biotrail.converters.clocks.alignment import Clocks
from biotrail.converters.events.tables import Bios, Certainty
from biotrail.converters.pipeline import Trace
from biotrail.text import tallies
from tests.support import perfetto_check
from tests.support.devices import LoopDevice
from tests.support.record_command import biotrail, read, recorder, stop

LOAD = {"rw": "randrw", "bs": "4k", "ioengine": "libaio", "iodepth": 8}


def slices(trace, host):
    """The bios below a root."""
    return [s for s in trace.slices("bio") if s.args["host"].endswith(host)]


def test_two_recorders_see_the_same_bio_at_the_same_time(
    needs_bpf: None, loop_device: LoopDevice, fio, tmp_path: Path
) -> None:
    # GIVEN two recorders of one device at once, and a load
    logs = [tmp_path / "one.biotrail", tmp_path / "two.biotrail"]
    with ExitStack() as stack:
        running = [stack.enter_context(recorder("-d", loop_device.name, "-o", log)) for log in logs]
        fio(loop_device.path, size="5m", **LOAD)
        for process in running:
            process.terminate()
            status, said = stop(process)
            assert status == 0, said
    # WHEN their logs are converted together
    target = tmp_path / "both.pftrace"
    said = biotrail("convert", "--detail", "full", *logs, "-o", target).stdout
    assert "the same boot, so the same clock: exact" in said
    trace = perfetto_check.read(target.read_bytes(), boottime=True)
    # THEN both have all bios, in the same order, each at the same time: two programs run one
    # behind the other for it, both before the thread that queues them comes to its next
    one, two = slices(trace, "one"), slices(trace, "two")
    assert len(one) > 1000
    assert [s.args["sector"] for s in one] == [s.args["sector"] for s in two]
    starts = np.array([[a.start for a in one], [b.start for b in two]])
    assert (starts[:, :-1].max(axis=0) < starts[:, 1:].min(axis=0)).all()
    # AND lining up adds nothing to what the kernel's clock showed each of them
    kernel = [read(log).bios for log in logs]
    expected = np.sort(kernel[0].queue) - np.sort(kernel[1].queue)
    found = np.sort([s.start for s in one]) - np.sort([s.start for s in two])
    assert (found == expected).all()


def test_wall_clocks_of_one_machine_line_up_to_the_microsecond(
    needs_bpf: None, loop_device: LoopDevice, fio, tmp_path: Path
) -> None:
    # GIVEN two recordings of this machine, one behind the other
    logs = []
    for name in ("one", "two"):
        logs.append(tmp_path / f"{name}.biotrail")
        with recorder("-d", loop_device.name, "-o", logs[-1]) as process:
            fio(loop_device.path, size="1m", **LOAD)
            process.terminate()
            stop(process)
    # WHEN they are lined up as if they were two machines', by their wall clocks
    one, two = (Clocks.from_trace(log.name, Trace(log)) for log in logs)
    two.boot = ("another", "0" * 32)
    alignment = two.align_to(one)
    assert not alignment.same_boot
    times = read(logs[1]).bios.queue
    # THEN that is where the same clock puts them, within what is said
    two.boot = one.boot
    expected = two.align_to(one).times(times)
    assert np.abs(alignment.times(times) - expected).max() <= alignment.uncertainty


def test_a_rotated_recording_is_one_log(
    needs_bpf: None, loop_device: LoopDevice, fio, completions, tmp_path: Path
) -> None:
    # GIVEN a recording that was rotated several times while I/O was in flight at any time
    target, truth = tmp_path / "r.biotrail", completions(loop_device.dev)
    with recorder("-d", loop_device.name, "--rotate", "150ms", "-o", target) as process:
        report = fio(loop_device.path, runtime=1, time_based=True, **LOAD)
        process.terminate()
        status, said = stop(process)
    assert status == 0, said
    files = sorted(tmp_path.glob("r-*.biotrail"))
    assert len(files) >= 3
    # WHEN its files are read together, in another order
    (recording,) = open_recordings([str(path) for path in files[::-1]])
    windows = list(recording.trace.lifecycles())
    bios = Bios.concatenate([window.bios for window in windows])
    # THEN every I/O of the load is there, whole and once
    job = report["jobs"][0]
    load = bios.take((bios.bytes == 4096) & (bios.dev == loop_device.dev))
    assert len(load) >= job["read"]["total_ios"] + job["write"]["total_ios"]
    assert len(np.unique(load.number)) == len(load)
    # AND all are known exactly, but for those whose completion no program was run for
    unseen = truth.unseen_by(*files)
    apart = unseen.concerns(load, load.queue)
    assert (load.certainty[~apart] == Certainty.EXACT).all()
    assert int((load.complete < 0).sum()) == unseen.with_data()
    # AND those are told
    told = recording.trace.account.completions_not_seen
    assert told <= len(unseen)
    assert len(tallies.loss_lines(recording.trace)) == (told > 0)
