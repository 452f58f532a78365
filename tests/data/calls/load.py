# SPDX-License-Identifier: Apache-2.0
"""What was recorded: reads, writes, mmap, fsync and sync of a file on ext4."""

import mmap
import os
from contextlib import suppress

fd = os.open("m/a", os.O_RDWR | os.O_CREAT)
data = b"x" * 65536
for i in range(20):
    os.pwrite(fd, data, i * 65536)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
for i in range(0, 20, 3):
    os.pread(fd, 4096, i * 65536)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
mapped = mmap.mmap(fd, 65536 * 20)
for i in range(1, 19, 7):
    mapped[i * 65536]
direct = os.open("m/a", os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for i in range(10):
    os.preadv(direct, [page], i * 4096)
    os.pwritev(direct, [page], i * 4096)
with suppress(OSError):
    os.preadv(direct, [memoryview(page)[:4096]], 512 * 1024 * 1024 + 1)
os.pwrite(fd, data, 4096)
os.sync()
