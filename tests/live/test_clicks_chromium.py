# SPDX-License-Identifier: Apache-2.0
"""From a slow fsync to its cause and culprit in three clicks, in the real UI, in Chromium.

By someone who knows Perfetto and not biotrail: from the first screen of a dropped trace, and from
that of the address that `view` and `convert` print.
"""

from pathlib import Path

import pytest

from biotrail.cli.main import main
from tests.support.perfetto_page import click_group, click_row, click_slice, opened, step
from tests.support.slow_fsync import CULPRIT, SLOW_FSYNC, VICTIM, record_slow_fsync

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.xdist_group("slow fsync")]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small fsync, while another program's 16 MiB are in a disk that stands still."""
    log = record_slow_fsync(tmp_path_factory.mktemp("fsync"))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(log)])
    return log.with_suffix(".pftrace")


def assert_told(panel: str) -> None:
    """The panel of the selected call says what it waited for, and whose I/O the disk had."""
    (why,) = [line for line in panel.splitlines() if line.startswith("waited ")]
    cause, _, culprit = why.partition("; meanwhile ")
    assert "page write-back (own I/O)" in cause
    assert culprit.partition(" had ")[2].partition(",")[0].endswith(f" MiB) of {CULPRIT}")


def test_two_clicks_lead_from_a_dropped_trace_to_the_culprit(trace: Path) -> None:
    # GIVEN a trace that is dropped into the UI, all groups closed
    with opened(trace, dropped=True) as page:
        # WHEN the host is opened, and of the slowest calls the program's own is clicked
        click_group(page, "block I/O$")
        found = click_slice(page, "^slowest calls$", SLOW_FSYNC, "meanwhile")
        # THEN the panel holds cause and culprit
        assert_told(found)


def test_two_clicks_lead_from_the_address_to_the_culprit(trace: Path) -> None:
    # GIVEN a trace that is opened by its address, with the table of the slowest
    with opened(trace) as page:
        # WHEN the row of the program's call is clicked, then the tab of what is selected
        click_row(page, f"fsync {VICTIM}")
        found = step(page, "Current Selection", "Absolute Time")
        # THEN the panel holds cause and culprit
        assert_told(found)
