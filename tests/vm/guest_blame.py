# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: a reader beside a writer on a device whose completion times are set."""

import sys

from tests.vm.guest_case import Case, scheduler
from tests.vm.guest_devices import null_blk

COMPLETION_NS = 20_000_000
"""So long that what emulation takes besides is little."""
READS = 200
PROGRAM = """
import mmap, os, subprocess, sys
device, name, reads = sys.argv[1], sys.argv[2], int(sys.argv[3])
beside = sys.argv[4:]
writer = None
if beside:
    writer = subprocess.Popen([sys.executable, "-c", *beside], stdout=subprocess.PIPE)
    writer.stdout.readline()
with open("/proc/self/comm", "w") as comm:
    comm.write(name)
file = os.open(device, os.O_RDWR | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
for at in range(reads):
    offset = at * 4096 % (16 << 20)
    os.preadv(file, [block], offset) if name == "app" else os.pwritev(file, [block], offset)
    if name != "app" and at == 0:
        print(flush=True)
if writer is not None:
    writer.kill()
    writer.wait()
    for at in range(reads):
        os.preadv(file, [block], at * 4096 % (16 << 20))
"""
"""A party's I/O, one by one: `app` reads, others write and say when they have begun.

Beside a program that is given: until it is done, and then as much once more, alone.
"""


def blamed(case: Case) -> None:
    """A reader that waits for the only tag beside a writer, and then has it alone.

    And the reader alone, on the device that is slow by itself.
    """
    attributes = {"irqmode": 2, "completion_nsec": COMPLETION_NS, "hw_queue_depth": 1}
    with null_blk("nullb_blame", submit_queues=1, **attributes) as name:
        scheduler(name, "none")
        path = f"/dev/{name}"
        writer = [PROGRAM, path, "backup", "1000000"]
        reader = [sys.executable, "-c", PROGRAM, path, "app", str(READS)]
        case.record([name], [*reader, *writer], more=["--path", "--call-budget=0"])
        case.record([name], reader, name="alone", more=["--path", "--call-budget=0"])
        case.told["devices"] = [name]
    case.told["completion_ns"] = COMPLETION_NS


CASES = (blamed,)
