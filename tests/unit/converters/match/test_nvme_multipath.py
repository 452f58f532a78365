# SPDX-License-Identifier: Apache-2.0
"""Completions that NVMe multipath tells twice: c by its driver, then C by the block layer."""

import pytest

from biotrail.converters.events.tables import Bios, Certainty, Requests
from biotrail.converters.pipeline import Trace
from tests.scenarios.stacks import HEAD, PATH_A
from tests.scenarios.tools import events_of, tables_of
from tests.support.paths import DATA

TWICE = """
    0   Q 259:8 W 0+16 bio=1
    1   Q 259:8 W 16+8 bio=2
    2   A 259:10 W 0+16 bio=1 from=259:8+0 opf=2000001
    3   G 259:10 W 0+16 bio=1 opf=2000001
    4   s 259:10 W 0+16 bio=1 rq=1 opf=2000001
    5   A 259:10 W 16+8 bio=2 from=259:8+16 opf=2000001
    6   M 259:10 W 16+8 bio=2 opf=2000001
    7   D 259:10 W 0+24 bio=1 rq=1 chain=1,2 opf=2000001
    60  c 259:10 W 0+16 bio=1 opf=2000001
    61  C 259:10 W 0+24 bio=1 rq=1 opf=2000001
    70  Q 259:8 R 8+8 bio=1
    71  A 259:10 R 8+8 bio=1 from=259:8+8 opf=2000000
    72  G 259:10 R 8+8 bio=1 opf=2000000
    73  s 259:10 R 8+8 bio=1 rq=1 opf=2000000
    74  D 259:10 R 8+8 bio=1 rq=1 opf=2000000
    80  c 259:10 R 8+8 bio=1 opf=2000000
    81  C 259:10 R 8+8 bio=1 rq=1 opf=2000000
"""
"""Of the request's two bios the driver names the first."""


def test_what_is_completed_twice_has_one_life() -> None:
    # GIVEN two bios that share a request, then one at the first one's address
    t = tables_of(events_of(TWICE), devices=(HEAD, PATH_A))
    # WHEN the log is read  THEN there are three, each known exactly, done with its request
    assert t.bios.bytes.tolist() == t.bios.done_bytes.tolist() == [8192, 4096, 4096]
    assert set(t.bios.certainty.tolist()) == {Certainty.EXACT}
    first, second = t.requests.complete.tolist()
    assert t.bios.complete.tolist() == [first, first, second]
    assert set(t.requests.certainty.tolist()) == {Certainty.EXACT}


@pytest.mark.parametrize("line", ["c 259:10 W 16+8 bio=1 opf=2000001", "c 259:10 W 0+16 bio=1"])
def test_another_bios_end_is_none_of_it(line: str) -> None:
    # GIVEN a c elsewhere, or that no driver of several paths told
    text = TWICE.replace("c 259:10 W 0+16 bio=1 opf=2000001", line)
    # WHEN the log is read  THEN the issued bio's own end was not seen
    t = tables_of(events_of(text), devices=(HEAD, PATH_A))
    assert t.bios.certainty[0] == Certainty.LOST


def test_a_disk_with_two_paths_as_6_12_tells_it() -> None:
    # GIVEN a log of three reads of such a disk
    trace = Trace(DATA / "paths" / "nvme_6.12.biotrail")
    (disk,) = (d["dev"] for d in trace.reader.header["devices"] if d["name"] == "nvme1n1")
    # WHEN it is read
    windows = list(trace.lifecycles())
    bios = Bios.concatenate([window.bios for window in windows])
    requests = Requests.concatenate([window.requests for window in windows])
    bios = bios.take(bios.dev == disk)
    # THEN each is known exactly, and done by one path or the other
    assert bios.done_bytes.tolist() == [4096, 4096, 4096]
    assert set(bios.certainty.tolist()) == {Certainty.EXACT}
    served = {int(n): (int(d), int(end)) for n, d, end in zip(
        requests.number, requests.dev, requests.complete, strict=True)}  # fmt: skip
    paths = [served[number][0] for number in bios.request.tolist()]
    assert paths[0] == paths[2] != paths[1]
    assert disk not in paths
    # AND ends with its request
    ends = [served[number][1] for number in bios.request.tolist()]
    assert bios.complete.tolist() == ends
