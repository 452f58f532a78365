# SPDX-License-Identifier: Apache-2.0
"""What others put where a flight recorder writes is neither waited for nor followed."""

from pathlib import Path

from biotrail.cli.measuring.flight_logs import FlightLogs
from tests.support.hostile_places import KINDS, put
from tests.support.shipped_logs import write_log


def test_what_is_no_log_of_the_recorder_is_left_out(tmp_path: Path) -> None:
    # GIVEN a directory that others may write to, watched for a flight recorder's logs
    elsewhere = write_log(tmp_path / "elsewhere.biotrail", 1)
    (tmp_path / "logs").mkdir()
    found = FlightLogs(str(tmp_path / "logs" / "slow.biotrail"))
    # WHEN there are links, FIFOs and the like by the names of its logs
    for number, kind in enumerate(KINDS):
        put(tmp_path / "logs" / f"slow-{number}.biotrail", kind, elsewhere)
    # THEN none is opened, nor waited for
    assert found.exemplars().logs == {}
