# SPDX-License-Identifier: Apache-2.0
"""What the recorder's own work costs per event: a log's records once more through its steps.

    python -m benchmarks.recorder_replay [LOG …] [--levels 1,0] [--rounds 5] [--json FILE]

The records of a log are put back into rings in memory, as the programs wrote them, and go the way
that they take while recording: copied out of the rings, a tenth of a ring at a time, gathered into
chunks, packed, and written to a log in memory. A row has the least CPU time per event of all
rounds, step by step; what no step has (waking up, the poll loop's own round, the kernel's and the
load's work on the same caches) is not in it. Without LOG, 3 s of 4 KiB random reads are recorded
first, which needs root and fio.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_loads import LOADS, running
from benchmarks.cost_tools import Biotrail
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogReader, Segment, packing
from biotrail.recorder.log import writer as log_writer
from biotrail.recorder.output.memory import keep_freed_memory
from biotrail.recorder.output.writer import WriterThread, merge
