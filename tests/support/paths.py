# SPDX-License-Identifier: Apache-2.0
"""Where the tree, the tests' data and the recorded sample are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
