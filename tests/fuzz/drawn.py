# SPDX-License-Identifier: Apache-2.0
"""Fuzzing without atheris: inputs that hypothesis draws, for FUZZ_SECONDS for each target.

Usage: drawn.py TARGET...; ends with the first input that breaks something, made small.
"""

import os
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[n]) for n in (0, 1, 2)]

from hypothesis import HealthCheck, given, seed, settings  # noqa: E402
from mutations import inputs_of  # noqa: E402
from targets import TARGETS  # noqa: E402


def main(names: list[str]) -> None:
    for name in names:
        stop = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "300"))
        count = number = 0

        def check(data: bytes, name: str = name) -> None:
            nonlocal count
            count += 1
            TARGETS[name](data)

        while time.monotonic() < stop:
            number += 1
            limits = settings(
                max_examples=100,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            seed(number)(limits(given(inputs_of(name))(check)))()
        print(f"fuzz: {name}: {count} inputs, none breaks it", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(TARGETS))
