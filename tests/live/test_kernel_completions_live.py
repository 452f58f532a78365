# SPDX-License-Identifier: Apache-2.0
"""What live tests set apart: no more than the I/O at completions that ftrace alone has."""

import os
from pathlib import Path

import pytest

from tests.support import captures, ftrace_setup, kernel_completions
from tests.support.captures import Event
from tests.support.devices import Fio, LoopDevice, fio_arguments
from tests.support.kernel_completions import Completion, Completions, Unseen
from tests.support.record_command import assert_ended, biotrail, read

CAPTURES = ["plugged-merge-loop", "fsync-virtio"]


def completion(event: Event) -> Completion:
    """An event as ftrace has it: whole microseconds."""
    time = captures.BASE_NS + event["ns"]
    what = event["dev"], event["sector"], event["bytes"]
    return kernel_completions.recorded(event["cpu"], time - time % 1000, *what)


@pytest.mark.parametrize("name", CAPTURES)
def test_each_missing_completion_is_set_apart_and_nothing_else(tmp_path: Path, name: str) -> None:
    # GIVEN a recording that is whole
    events = captures.load(name)
    whole = captures.write_log(tmp_path / "whole.biotrail", events)
    assert_ended(read(whole))
    ends = [number for number, event in enumerate(events) if event["letter"] == "C"]
    assert ends
    for number in ends:
        # WHEN one of its completions is missing
        rest = [e for at, e in enumerate(events) if at != number]
        log = captures.write_log(tmp_path / f"{number}.biotrail", rest)
        # THEN that is a failure
        with pytest.raises(AssertionError):
            assert_ended(read(log))
        # AND none where no program was run for it, which is no excuse for any other
        assert_ended(read(log, Unseen((completion(events[number]),))))
        for other in set(ends) - {number}:
            one, another = completion(events[number]), completion(events[other])
            if (one.dev, one.sector) != (another.dev, another.sector):
                with pytest.raises(AssertionError):
                    assert_ended(read(log, Unseen((another,))))


def test_what_a_recording_lacks_was_in_a_service_thread(
    needs_bpf: None, loop_device: LoopDevice, completions: Completions, fio: Fio, tmp_path: Path
) -> None:
    # GIVEN ftrace beside a recording
    log, truth = tmp_path / "x.biotrail", completions(loop_device.dev)
    job = {"rw": "randrw", "bs": "4k", "size": "16m", "ioengine": "io_uring", "iodepth": 32}
    load = ["fio", "--output=/dev/null", *fio_arguments(loop_device.path, **job)]
    # WHEN there is a load
    biotrail("record", "-d", loop_device.name, "-o", log, "--", *load)
    # THEN ftrace has each completion once, and the log all of them but for those set apart
    whole, unseen = truth.all(), truth.unseen_by(log)
    assert sum(one.sectors > 0 for one in whole) == 4096
    found = read(log, unseen)
    assert_ended(found)
    assert found.account.by_letter()["C"] + len(unseen) == len(whole)


def test_an_instance_is_gone_with_its_block(needs_root: None) -> None:
    # GIVEN a tracing test that fails WHEN its block is left THEN its instance is gone
    ours = f"instances/{ftrace_setup.INSTANCE}{os.getpid()}-*"
    try:
        with ftrace_setup.tracefs() as root:
            with pytest.raises(RuntimeError), kernel_completions.tracing() as trace:
                trace(1)
                assert list(root.glob(ours))
                raise RuntimeError
            assert not list(root.glob(ours))
    except ftrace_setup.NoTracerError as why:
        pytest.skip(str(why))


@pytest.mark.xdist_group("the blk tracer")
def test_an_instance_prints_text_while_the_blk_tracer_is_binary(
    loop_device: LoopDevice, fio: Fio
) -> None:
    # GIVEN the machine's ftrace as the blk tracer has it, in binary
    try:
        with ftrace_setup.binary_blk_tracer(64), kernel_completions.tracing() as trace:
            # WHEN an instance is made and there is I/O
            truth = trace(loop_device.dev)
            fio(loop_device.path, rw="read", bs="64k", size="1m")
            # THEN what ftrace saw can be read
            assert len(truth.all()) == 16
    except ftrace_setup.NoTracerError as why:
        pytest.skip(str(why))
