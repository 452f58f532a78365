# SPDX-License-Identifier: Apache-2.0
"""A program of its own that switches the kernel's counting of BPF runs for the recorder.

BPF_ENABLE_STATS requires CAP_SYS_ADMIN, which the recorder can then give up. This process keeps
that capability alone. Each byte on standard input switches the counting: "1" on, any other off.
The process ends at the end of standard input, so at the latest with the recorder. Few imports
keep it small.
"""

import ctypes
import os
import sys

_BELOW = "/biotrail/recorder/probes/kernel/stats_child.py"
"""This file, below what has to be on the path."""
_BPF_STATS_RUN_TIME = 0


def _main() -> None:
    # python -I -S: site-packages, and so an installed biotrail, is not on sys.path.
    sys.path.append(os.path.abspath(__file__).removesuffix(_BELOW))
    from biotrail.recorder.rights import capabilities

    try:
        library = ctypes.CDLL("libbpf.so.1")
    except OSError:
        library = ctypes.CDLL("libbpf.so.0")
    right = capabilities.mask(["CAP_SYS_ADMIN"])
    capabilities.become(right, right, 0)
    capabilities.gain_no_more()
    counting = -1
    while order := os.read(0, 1):
        if order == b"1" and counting < 0:
            counting = library.bpf_enable_stats(_BPF_STATS_RUN_TIME)
        elif order != b"1" and counting >= 0:
            os.close(counting)
            counting = -1


if __name__ == "__main__":
    _main()
