# SPDX-License-Identifier: Apache-2.0
"""Has the kernel count runs and time of BPF programs for a while (BPF_ENABLE_STATS)."""

import os
from contextlib import suppress

from recorder.errors import ProbeError
from recorder.probes.libbpf import load_library

_BPF_STATS_RUN_TIME = 0


class RunStats:
    """On or off; off again with this process, however it ends."""

    def __init__(self) -> None:
        self._fd = -1

    def switch(self, on: bool) -> None:
        """Where the kernel does not permit it (it takes CAP_SYS_ADMIN), nothing happens."""
        if on and self._fd < 0:
            with suppress(ProbeError):
                self._fd = load_library().call(
                    "run statistics", "bpf_enable_stats", _BPF_STATS_RUN_TIME
                )
        elif not on and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
