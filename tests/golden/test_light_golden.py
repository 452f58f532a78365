# SPDX-License-Identifier: Apache-2.0
"""Commands on a known light log, as people see them. `--update` rewrites what is expected."""

from pathlib import Path

import pytest

from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.light_logs import FLUSH, PREFLUSH, WRITE, Light, write_log

EXPECTED = Path(__file__).parent / "light"
MS = 1_000_000
NO_BIO = {"sector": (1 << 64) - 1, "bytes": 0, "opf": FLUSH, "bios": 0}
LOG = (
    *(
        Light((n + 2) * MS, n * MS, n * MS + 100_000, sector=n * 8, rq=0xFFFF888000001000 + n * 384)
        for n in range(8)
    ),
    Light(12 * MS, 9 * MS, 10 * MS, sector=800, bytes=65536, opf=WRITE, bios=16),
    Light(13 * MS, 11 * MS, None, sector=900),
    Light(14 * MS, None, 13 * MS, sector=908),
    Light(15 * MS, 14 * MS, 14 * MS + 1000, **NO_BIO),
    Light(16 * MS, 13 * MS, None, opf=WRITE | PREFLUSH, bytes=0),
    Light(17 * MS, 16 * MS, 16 * MS + 1000, sector=1000, opf=WRITE, status=10),
)
CASES = {
    "report": ["report"],
    "info": ["info"],
    "slow": ["slow", "-n", "3"],
    "hist": ["hist", "--stage", "D2C"],
    "dump": ["dump"],
    "requests": ["export", "--what", "requests", "--format", "csv"],
}


@pytest.mark.parametrize("name", CASES)
def test_a_command_on_a_light_log(
    name: str, cli: Cli, tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a light log with every kind of request, and a terminal of 100 columns
    write_log(tmp_path / "light.biotrail", LOG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    # WHEN a command reads it
    out = cli(*CASES[name], "light.biotrail").out
    # THEN what it says is on file
    expect(EXPECTED / f"{name}.txt", out)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a case
    assert sorted(path.stem for path in EXPECTED.glob("*.txt")) == sorted(CASES)
