# SPDX-License-Identifier: Apache-2.0
"""A log of reads of which some latencies are in doubt, when it is read by intervals."""

from pathlib import Path

from tests.scenarios.tools import events_of
from tests.support import captures

READS = """
    0 QG R 0+8 bio=1 pid=11
    2 D 100 C R 0+8 bio=1 rq=1
    200 QG R 800+8 bio=2 pid=11
    202 D 5200 C R 800+8 bio=2 rq=2
    210 QG R 800+8 bio=3 pid=12
    212 D 1200 C R 800+8 bio=3 rq=3
    6000 QG R 1600+8 bio=4 pid=11
    6002 D 6300 C R 1600+8 bio=4 rq=4
    6003 QG R 1600+8 bio=5 pid=12
    6005 D 6310 C R 1600+8 bio=5 rq=5
    """
"""One read alone, two of one place that end far apart, and two that end almost at once."""

BY_INTERVALS = ("--associate", "intervals")
KNOWN_NS = [100_000, 300_000, 307_000]
"""Latencies of the bios that are not in doubt, by their number."""
DOUBTFUL_NS = [1_000_000, 4_990_000]
"""Latencies of those in doubt, as they are paired: 5 ms and 0.99 ms is what happened."""


def write(path: Path) -> Path:
    """Write the log, with pointers: the truth is in it. Returns its path."""
    return captures.write_log(path, events_of(READS))
