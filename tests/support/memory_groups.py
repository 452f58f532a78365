# SPDX-License-Identifier: Apache-2.0
"""Cgroups with a limit of memory, of the version that this machine has."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.record_command import remove_cgroup


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A cgroup with that much memory; v1 or v2."""
    for root, name in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"biotrail-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / name).exists():
                (group / name).write_text(str(limit))
                yield group
                return
        finally:
            remove_cgroup(group)
    pytest.skip("needs a memory cgroup")
