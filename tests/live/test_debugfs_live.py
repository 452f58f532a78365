# SPDX-License-Identifier: Apache-2.0
"""Looking into debugfs leaves no mount behind."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.probes.kernel import tracefs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_debugfs_is_read_without_a_mount_in_the_tree(tmp_path: Path) -> None:
    # GIVEN a host where debugfs is not mounted at its place
    before = Path("/proc/self/mountinfo").read_text()
    opened = len(os.listdir("/proc/self/fd"))
    # WHEN it is looked into
    with tracefs.debugfs(tmp_path / "nothing") as place:
        names = os.listdir(place) if place.exists() else []
        # THEN its files are there, and no mount has been added to the tree
        assert Path("/proc/self/mountinfo").read_text() == before
    if not names:
        pytest.skip("this kernel has no debugfs, or this process may not mount it")
    # AND nothing is left open
    assert len(os.listdir("/proc/self/fd")) == opened
