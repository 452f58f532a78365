# SPDX-License-Identifier: Apache-2.0
"""Lifecycles of a trace that LTTng recorded, as text. `--update` rewrites what is expected."""

import subprocess
from pathlib import Path

import pytest

from tests.scenarios.tools import describe, read
from tests.support.golden_files import Expect

HERE = Path(__file__).parent
TRACE = HERE.parent / "data/lttng/kernel"
EXPECTED = HERE / "lttng.txt"


def test_lifecycles_of_a_trace(expect: Expect) -> None:
    # GIVEN a trace of reads and writes  WHEN it is read and associated
    command = ["/usr/bin/python3", "-c", "import bt2"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("babeltrace2: the Python bindings (bt2) are not installed")
    found = describe(read(TRACE)) + "\n"
    # THEN its bios and requests are those on file
    expect(EXPECTED, found)
