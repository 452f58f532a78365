# SPDX-License-Identifier: Apache-2.0
"""Run as a program of its own: switches run statistics, so that the recorder needs no right to.

BPF_ENABLE_STATS takes CAP_SYS_ADMIN, the largest right there is. This process keeps that
one alone and does nothing else: each byte on standard input switches, "1" on and any other
off. It ends with the recorder, when standard input does. It imports little, to stay small.
"""

import ctypes
import os
import sys

_BELOW = "/biotrail/recorder/probes/stats_child.py"
"""This file, below what has to be on the path."""
_LIBRARIES = ("libbpf.so.1", "libbpf.so.0")
_BPF_STATS_RUN_TIME = 0


def _library() -> ctypes.CDLL:
    for name in _LIBRARIES[:-1]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return ctypes.CDLL(_LIBRARIES[-1])


def _main() -> None:
    # Neither a virtual environment nor an installation is on the path here.
    sys.path.append(os.path.abspath(__file__).removesuffix(_BELOW))
    from biotrail.recorder.rights import capabilities

    library = _library()
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
