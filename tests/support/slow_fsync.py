# SPDX-License-Identifier: Apache-2.0
"""A recording of an fsync that is slow for a known reason: a disk busy with another's writes."""

from contextlib import ExitStack
from pathlib import Path

from tests.support import devices
from tests.support.devices import MEBIBYTE
from tests.support.path_disks import Disk, mounted

VICTIM, CULPRIT = "wal", "backup"
SLOW_FSYNC = (
    "SELECT id, ts, dur FROM slice WHERE category = 'slowest call' "
    f"AND name = 'fsync {VICTIM}' ORDER BY dur DESC LIMIT 1"
)
"""Gives the slice of that fsync in the trace."""
_MIB = 16
_HELD = 0.3
"""Seconds for which the disk stands still."""
_PROGRAM = """
import threading, time

below, sysfs, mib, held = sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5])
CULPRIT = '''
import os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("backup")
file = os.open(sys.argv[1] + "/copy", os.O_CREAT | os.O_WRONLY)
os.write(file, bytes(int(sys.argv[2]) << 20))
print(flush=True)
sys.stdin.readline()
os.fsync(file)
'''
name("wal")
log = os.open(here + "/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
def commit():
    os.write(log, b"x" * 300)
    os.fsync(log)
for _ in range(10):
    commit()
    time.sleep(0.02)
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
culprit = subprocess.Popen([sys.executable, "-c", CULPRIT, here, str(mib)], **pipes)
culprit.stdout.readline()
def let_go():
    time.sleep(held)
    subprocess.run(["fsfreeze", "--unfreeze", below], check=True)
subprocess.run(["fsfreeze", "--freeze", below], check=True)
try:
    culprit.stdin.write("\\n")
    culprit.stdin.flush()
    until = time.monotonic() + 60
    while sum(map(int, open(sysfs).read().split())) < 4 and time.monotonic() < until:
        time.sleep(0.01)
finally:
    thread = threading.Thread(target=let_go)
    thread.start()
commit()
thread.join()
culprit.wait()
for _ in range(10):
    commit()
    time.sleep(0.02)
"""


def record_slow_fsync(directory: Path) -> Path:
    """Record VICTIM's small fsyncs, one while CULPRIT writes back and the disk stands still."""
    with ExitStack() as stack:
        lower = stack.enter_context(devices.loop(size=128 * MEBIBYTE))
        devices.make_ext4(lower.path)
        where = directory / "below"
        where.mkdir()
        stack.enter_context(devices.mounted(lower.path, where))
        upper = stack.enter_context(devices.loop(96 * MEBIBYTE, directory=where))
        disk: Disk = stack.enter_context(mounted(upper, "ext4", directory / "mount"))
        inflight = f"/sys/block/{upper.name}/inflight"
        log = directory / "fsync.biotrail"
        disk.record(log, disk.program(_PROGRAM, where, inflight, _MIB, _HELD), "--path", "--files")
    return log
