# SPDX-License-Identifier: Apache-2.0
"""Archives of a fleet: a capture's I/O again and again, recorded by hosts of given names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.enlarged_logs import enlarge, make
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.outputs.parquet import archive
from tests.support import captures

CAPTURE = "fsync-virtio"


def log_of(path: Path, capture: str = CAPTURE, times: int = 1, **header: Any) -> Path:
    """Write the log of a capture, `times` times over; `header` replaces keys of its header."""
    once = path.with_suffix(".once")
    captures.write_log(once, captures.load(capture), header)
    enlarge(once, times, path)
    once.unlink()
    return path


def archive_of(log: Path, out: Path) -> Path:
    with out.open("wb") as stream:
        archive.write(open_source(log), stream)
    return out


def host_archive(
    folder: Path, host: str, capture: str = CAPTURE, times: int = 1, **header: Any
) -> Path:
    """Write the archive of a host: `folder`/HOST.parquet."""
    facts: Mapping[str, Any] = captures.header()["host"]
    given = {"host": {**facts, "name": host}, "log_id": host.encode().hex().rjust(32, "0")}
    log = log_of(folder / f"{host}.log", capture, times, **{**given, **header})
    out = archive_of(log, folder / f"{host}.parquet")
    log.unlink()
    return out


def fleet(folder: Path, hosts: int, log: Path) -> list[Path]:
    """Write the archives of so many hosts, all of one log, each an hour later than the other."""
    folder.mkdir(exist_ok=True)
    for number in range(hosts):
        make(log, number, folder)
    return sorted(folder.glob("*.parquet"))
