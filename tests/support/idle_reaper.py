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

from tests.support.held_batch import BLOCK, PREAD, SYSCALLS, checked, iocb

NAME = "idle-reaper"
READS = 3
ONE = ctypes.c_long(1)


def main(path: str, pause: float) -> None:
    Path("/proc/self/comm").write_text(NAME)
    setup, _, getevents, submit = SYSCALLS[platform.machine()]
    context, page = ctypes.c_ulong(0), mmap.mmap(-1, BLOCK)
    checked(setup, ctypes.c_long(64), ctypes.byref(context))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    os.write(fd, page)

    def reap() -> None:
        events = ctypes.create_string_buffer(32)
        for _ in range(READS):
            checked(getevents, context, ONE, ONE, events, None)

    waiter = threading.Thread(target=reap)
    waiter.start()
    read = iocb(PREAD, fd, ctypes.addressof(ctypes.c_char.from_buffer(page)), BLOCK, 0)
    block = ctypes.create_string_buffer(read, len(read))
    pointer = ctypes.c_void_p(ctypes.addressof(block))
    for _ in range(READS):
        time.sleep(pause)
        assert checked(submit, context, ONE, ctypes.byref(pointer)) == 1
    waiter.join()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
