# SPDX-License-Identifier: Apache-2.0
"""Columns of bios that say which call queued each, and who dirtied what it writes back."""

from pathlib import Path
from typing import Any

import biotrail
from biotrail.converters.lifecycles.arrow.columns import PATH_NAMES
from tests.support.path_logs import FSYNC, WRITE, PathLog
from tests.support.stack_logs import START


def rows(path: Path) -> list[dict[str, Any]]:
    table = biotrail.open(path).bios.select(["comm", *PATH_NAMES])
    return table.to_pylist()  # type: ignore[no-any-return]


def test_columns_of_the_path(tmp_path: Path) -> None:
    # GIVEN bios: of a pread with its times, an fsync without, a page fault, a 32-bit program, of
    # a kworker that writes back, and of a thread of which nothing is known
    log = PathLog()
    log.task(42, b"db")
    log.task(7, b"kworker/u8:1")
    log.bio(120, 300, entry=100, args=(3, 0, 4096, 8192))
    log.bio(130, 310, call=FSYNC, args=(5, 0, 0, 0), opf=WRITE)
    log.bio(140, 320, call=-1)
    log.bio(150, 330, call=3, foreign=True)
    log.bio(160, 340, 7, call=None, opf=WRITE, dirtied=(50, 42, b"db"), dirtied_in=9)
    log.bio(170, 350, 7, call=None)
    # WHEN bios are asked for as a table
    found = rows(log.write(tmp_path / "x.biotrail"))
    # THEN each says what is known, the rest is null
    none = dict.fromkeys(PATH_NAMES)
    place = {"call_fd": 3, "call_offset": 8192, "call_length": 4096}
    assert found == [
        {**none, "comm": "db", "call": "pread64", "entry_ns": START + 100, **place},
        {**none, "comm": "db", "call": "fsync", "call_fd": 5},
        {**none, "comm": "db", "call": "page fault"},
        {**none, "comm": "db", "call": "32-bit syscall 3"},
        {
            **none,
            "comm": "kworker/u8:1",
            "dirty_ns": START + 110,
            "dirty_tid": 42,
            "dirty_pid": 42,
            "dirty_comm": "db",
            "dirty_cgroup": "id 9",
        },
        {**none, "comm": "kworker/u8:1"},
    ]


def test_logs_without_the_path(tmp_path: Path) -> None:
    # GIVEN a log without the path  WHEN bios are asked for  THEN its columns are null
    log = PathLog()
    log.bio(100, 200, call=None)
    [row] = rows(log.write(tmp_path / "x.biotrail", path=None))
    assert [row[name] for name in PATH_NAMES] == [None] * len(PATH_NAMES)
