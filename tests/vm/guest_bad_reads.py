# SPDX-License-Identifier: Apache-2.0
"""1,000 direct reads of two blocks by turns; fails unless each of them fails.

Arguments: the device, where the first block begins. fio ends at errors of this kind.
"""

import mmap
import os
import sys

BLOCK = 4096
READS = 1000


def failures(path: str, begin: int) -> int:
    """How many of the reads failed."""
    disk = os.open(path, os.O_RDONLY | os.O_DIRECT)
    memory = mmap.mmap(-1, BLOCK)
    failed = 0
    for number in range(READS):
        try:
            got = os.preadv(disk, [memory], begin + BLOCK * (number % 2))
            failed += got < BLOCK
        except OSError:
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(failures(sys.argv[1], int(sys.argv[2])) != READS)
