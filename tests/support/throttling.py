# SPDX-License-Identifier: Apache-2.0
"""A cgroup of this machine that limits its processes' reads from a device, of either version."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.record_command import remove_cgroup

NAME = f"biotrail-test-throttled-{os.getpid()}"


def _mounts() -> Iterator[tuple[str, Path]]:
    """(kind, place) of each cgroup file system: `cgroup2`, or the options of a first version's."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield (kind if kind == "cgroup2" else options), Path(place)


def limiting() -> tuple[Path, str, str] | None:
    """(root of the cgroups, file of limits, form of a limit); None: this machine limits no I/O."""
    for kind, root in _mounts():
        if kind == "cgroup2" and "io" in (root / "cgroup.controllers").read_text().split():
            return root, "io.max", "{dev} riops={reads}"
        if "blkio" in re.split(",", kind):
            return root, "blkio.throttle.read_iops_device", "{dev} {reads}"
    return None


@contextmanager
def throttled(processes: list[int], dev: int, reads: int) -> Iterator[None]:
    """Have processes do at most `reads` reads a second from a device (dev_t) in the block."""
    found = limiting()
    assert found is not None, "this machine limits no I/O"
    root, limits, form = found
    if limits == "io.max":
        (root / "cgroup.subtree_control").write_text("+io")
    place = root / NAME
    place.mkdir()
    try:
        number = f"{dev >> 20}:{dev & 0xFFFFF}"
        (place / limits).write_text(form.format(dev=number, reads=reads))
        for process in processes:
            (place / "cgroup.procs").write_text(str(process))
        yield
    finally:
        for process in processes:
            try:
                (root / "cgroup.procs").write_text(str(process))
            except ProcessLookupError:
                continue
        remove_cgroup(place)
