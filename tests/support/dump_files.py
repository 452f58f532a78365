# SPDX-License-Identifier: Apache-2.0
"""Dumps of a flight recorder in a directory."""

from pathlib import Path


def dumps(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.biotrail"))
