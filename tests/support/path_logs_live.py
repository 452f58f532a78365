# SPDX-License-Identifier: Apache-2.0
"""Logs of real I/O with its path: read whole, and held against the file system."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.records import PATH_PARTS, Kind
from tests.support import devices
from tests.support.path_tables import RecordedPath, recorded_path


def whole(log: Path) -> RecordedPath:
    """The log, of which nothing was lost and no part of the path is missing."""
    reader = LogReader(log)
    assert reader.losses == []
    facts = reader.header["path"]
    assert (facts["parts"], facts["missing"]) == (list(PATH_PARTS), [])
    return recorded_path(log)


def sector_of(path: Path) -> Callable[[int], int]:
    """From an offset in a file to its sector on the device, by the file system's own account."""
    if shutil.which("filefrag") is None:
        pytest.skip("needs filefrag")
    said = devices.run("filefrag", "-e", "-b512", path)
    found = re.findall(r"^ *\d+: +(\d+)\.\. +(\d+): +(\d+)\.\.", said, re.MULTILINE)
    extents = [tuple(map(int, extent)) for extent in found]
    assert extents, said

    def sector(offset: int) -> int:
        at = offset // 512
        (there,) = (start + at - first for first, last, start in extents if first <= at <= last)
        return there

    return sector


def operations(bios: Bios) -> np.ndarray:
    return bios.opf & 0xFF


def completions(log: Path) -> RecordedPath:
    found = whole(log)
    counts = dict.fromkeys((Kind.C, Kind.INTERRUPT), 0)
    for events, _ in Trace(log).events():
        for kind in counts:
            counts[kind] += len(events.rows(kind))
    assert counts[Kind.C] == counts[Kind.INTERRUPT] > 0
    return found
