# SPDX-License-Identifier: Apache-2.0
"""Where the machine's C has no memory left, its caller gets MemoryError, and the process lives."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import captures
from tests.support.paths import ROOT

MIB = 1 << 20
# A child for each limit: how much a process may still have depends on what it asked for before.
TRIED = f"""
import os, resource, sys
from biotrail.converters.match.tables import Matcher
from biotrail.converters.pipeline import Trace

trace = Trace(sys.argv[1], sys.argv[2], own_io=True)
(events, _), = trace.events(1 << 40)
trace.tasks.add_records(events)
ends = []
for spare in range(0, 200 * {MIB}, 2 * {MIB}):
    child = os.fork()
    if child == 0:
        with open("/proc/self/statm") as counts:
            used = int(counts.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + spare, used + spare))
        try:
            matcher = Matcher(
                trace.context, trace.tasks, trace.stacks, by_intervals=trace.by_intervals
            )
            matcher.build(events, settle_ns=0, before=None)
            matcher = None
        except MemoryError:
            try:
                # It says so again, and gives back what it has.
                matcher = matcher.build(events, settle_ns=0, before=None)
            except (MemoryError, NameError):
                matcher = None
                os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ends.append(status)
    if status == 0:
        break
print(*ends)
"""


@pytest.mark.parametrize("associate", ["identity", "intervals"])
def test_the_caller_learns_that_memory_ran_out(tmp_path: Path, associate: str) -> None:
    # GIVEN a log of many bios in flight
    events = captures.parse(
        "\n".join(
            f"0.{at:06d} cpu0 Q 8:0 R {at * 8}+8 bio={0x1000 + at * 0x100:x} pid={1 + at % 900}"
            for at in range(20_000)
        )
    )
    log = captures.write_log(tmp_path / "a.biotrail", events)
    # WHEN the machine reads it with more and more memory, from none on
    done = subprocess.run(
        [sys.executable, "-c", TRIED, str(log), associate],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    # THEN it says each time that there was not enough, until there is
    *short, last = map(int, done.stdout.split())
    assert last == 0
    assert len(short) > 3
    assert set(short) == {1}
    assert done.stderr == ""
