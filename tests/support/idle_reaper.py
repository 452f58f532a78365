# SPDX-License-Identifier: Apache-2.0
"""One thread waits in io_getevents(), another submits one direct read of 4 KiB, three times.

Arguments: a file on a file system with direct I/O, which is made, and seconds between the reads.
"""

import ctypes
import mmap
import os
import platform
import sys
import threading
import time
from pathlib import Path

NAME = "idle-reaper"
SETUP, GETEVENTS, SUBMIT = {
    "x86_64": (206, 208, 209),
    "aarch64": (0, 4, 2),
    "riscv64": (0, 4, 2),
}.get(platform.machine(), (0, 0, 0))
READS, PREAD = 3, 0
syscall = ctypes.CDLL(None).syscall


class Iocb(ctypes.Structure):
    """`struct iocb`, include/uapi/linux/aio_abi.h."""

    _fields_ = (
        *(("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32)),
        *(("op", ctypes.c_uint16), ("prio", ctypes.c_int16), ("fd", ctypes.c_uint32)),
        *(("buf", ctypes.c_uint64), ("nbytes", ctypes.c_uint64), ("offset", ctypes.c_int64)),
        *(("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("resfd", ctypes.c_uint32)),
    )


def reap(context: ctypes.c_ulong) -> None:
    events = (ctypes.c_char * 32)()
    for _ in range(READS):
        syscall(GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(1), events, None)


def main(path: str, pause: float) -> None:
    Path("/proc/self/comm").write_text(NAME)
    context = ctypes.c_ulong(0)
    assert syscall(SETUP, 64, ctypes.byref(context)) == 0
    page = mmap.mmap(-1, 4096)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    os.write(fd, page)
    waiter = threading.Thread(target=reap, args=(context,))
    waiter.start()
    for number in range(READS):
        time.sleep(pause)
        iocb = Iocb(data=number, op=PREAD, fd=fd, nbytes=4096)
        iocb.buf = ctypes.addressof(ctypes.c_char.from_buffer(page))
        pointer = ctypes.pointer(iocb)
        assert syscall(SUBMIT, context, ctypes.c_long(1), ctypes.byref(pointer)) == 1
    waiter.join()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
