# SPDX-License-Identifier: Apache-2.0
"""bcc compiles with each of the directories that Debian spreads a kernel's headers over."""

from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.probes.bcc import child as bcc_child
from biotrail.recorder.probes.bcc import headers as bcc_headers
from tests.support.record_command import biotrail, environment

pytestmark = pytest.mark.usefixtures("needs_root")


def debians() -> list[Path]:
    """Both directories of one kernel's headers that are installed here; none: there are none."""
    for build in sorted(Path("/usr/src").glob("linux-headers-*")):
        if (build / "include/generated").exists():
            return [build, bcc_headers.resolve(build).directory or build]
    return []


@pytest.mark.parametrize("which", ["unnamed", "build", "common"])
def test_a_half_of_debians_headers_will_do(which: str, tmp_path: Path) -> None:
    # GIVEN bcc, and a kernel's headers as Debian has them
    if bcc_child.find_bcc() is None:
        pytest.skip("bcc: python3-bpfcc is not installed")
    places = debians()
    if not places:
        pytest.skip("bcc: no kernel headers are installed")
    named = {"unnamed": "", "build": str(places[0]), "common": str(places[1])}[which]
    env = {name: value for name, value in environment().items() if name != bcc_headers.NAMED}
    env |= {bcc_headers.NAMED: named} if named else {}
    # WHEN something is recorded with either half named, or none
    log = tmp_path / "log.biotrail"
    biotrail("record", "--backend", "bcc", "-o", log, "--", "sync", env=env)
    # THEN there is a log
    assert LogReader(log).header["backend"] == "bcc"
