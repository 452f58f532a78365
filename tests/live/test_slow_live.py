# SPDX-License-Identifier: Apache-2.0
"""Provoked causes are named: few requests, and a lower device that does not answer."""

import json
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import devices
from tests.support.holding import (
    MEBIBYTE,
    frozen,
    in_flight,
    loop_over,
    mounted,
    on_a_file_system,
    waits_for_the_disk,
    write,
)
from tests.support.kernel_completions import done_again
from tests.support.record_command import SECONDS, biotrail, recorder, stop, wait_until

pytestmark = pytest.mark.usefixtures("needs_bpf")

FEW = 4
HELD_NS = 200_000_000


def longest(slow: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = max(slow["io"]["stages"], key=lambda span: span["ns"])
    return found


@pytest.fixture
def upper(tmp_path: Path, make_loop: Callable[..., Any]) -> Any:
    """A loop device with few requests, over a file system that can be frozen: (device, place)."""
    where = tmp_path / "lower"
    with ExitStack() as stack:
        upper = stack.enter_context(on_a_file_system(make_loop, where))
        setting = Path(f"/sys/block/{upper.name}/queue/nr_requests")
        before = setting.read_text()
        setting.write_text(str(FEW))
        # The kernel keeps it when the device is detached.
        stack.callback(setting.write_text, before)
        yield upper, where


@done_again
def test_a_queue_with_few_requests_is_named(tmp_path: Path, upper: Any) -> None:
    # GIVEN a device with four requests, which does not answer for a while
    device, where = upper
    log = tmp_path / "a.biotrail"
    with recorder("-d", device.name, "-o", log) as process:
        with frozen(where):
            # WHEN eight writes are sent at once
            writing = [write(device.path, 8 * n) for n in range(2 * FEW)]
            wait_until(lambda: in_flight(device.name) == FEW, "not all requests are in use")
            wait_until(lambda: all(map(waits_for_the_disk, writing)), "not all writes wait")
            time.sleep(2 * HELD_NS / 1e9)
        assert [w.wait(SECONDS) for w in writing] == [0] * len(writing)
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    found = json.loads(biotrail("slow", "--over", "200ms", "--op", "write", "--json", log).stdout)
    # THEN half of them waited for the device
    slow = found["ios"]
    assert len(slow) == 2 * FEW
    in_device = [s for s in slow if any(_held(s, "D2C"))]
    assert len(in_device) == FEW
    # AND the others for a request, all of which were in use
    waited = [s for s in slow if any(_held(s, "Q2G"))]
    assert len(waited) == FEW
    queued = [s["surroundings"]["when_queued"] for s in waited]
    assert max(q["requests_allocated"] for q in queued) == FEW
    # AND people are told so
    text = biotrail("slow", "--over", "200ms", "--op", "write", log).stdout
    assert "waited for a request" in text
    assert f"{FEW} requests in use (all that nr_requests allows)" in text


def _held(slow: dict[str, Any], stage: str) -> list[int]:
    """The stages of that name that lasted as long as the device did not answer."""
    spans = slow["io"]["stages"]
    return [s["ns"] for s in spans if s["stage"] == stage and s["ns"] >= HELD_NS]


@done_again
def test_a_slow_device_below_is_named(tmp_path: Path, make_loop: Callable[..., Any]) -> None:
    # GIVEN a loop device with direct I/O over a file system on a device that does not answer
    base, first, second = make_loop(size=64 * MEBIBYTE), tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    devices.make_ext4(base.path)
    log = tmp_path / "a.biotrail"
    with ExitStack() as stack:
        stack.enter_context(mounted(base.path, first))
        lower = loop_over(stack, 32 * MEBIBYTE, first)
        devices.make_ext4(lower.path)
        stack.enter_context(mounted(lower.path, second))
        upper = stack.enter_context(
            devices.loop(size=4 * MEBIBYTE, direct_io=True, directory=second)
        )
        if Path(f"/sys/block/{upper.name}/loop/dio").read_text().strip() != "1":
            pytest.skip("no direct I/O on a loop device here")
        # Written once: later writes need no change of the file system.
        devices.run("dd", "if=/dev/zero", f"of={upper.path}", "bs=1M", "count=4", "oflag=direct")
        devices.run("sync")
        with recorder("-d", upper.name, "--below", "-o", log) as process:
            # WHEN a write to the upper one waits for the lower one
            with frozen(first):
                writing = write(upper.path, 800)
                wait_until(lambda: in_flight(upper.name) > 0, "the write does not begin")
                time.sleep(2 * HELD_NS / 1e9)
            assert writing.wait(SECONDS) == 0
            status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # THEN the upper one's I/O is told with the lower one's, which took the time
    chosen = ("slow", "--over", "200ms", "--op", "write")
    slow = json.loads(biotrail(*chosen, "--json", log).stdout)["ios"]
    ours = next(s for s in slow if s["io"]["device"] == upper.name)
    assert longest(ours)["stage"] == "D2C"
    below = [child for child in ours["children"] if child["device"] == lower.name]
    assert max(child["waited_ns"] for child in below) >= HELD_NS
    assert "most of that was the lower device's" in biotrail(*chosen, log).stdout
