# SPDX-License-Identifier: Apache-2.0
"""Fuzzing without atheris: inputs that hypothesis draws, for FUZZ_SECONDS for each target.

Usage: drawn.py TARGET...; ends with the first input that breaks something, made small.
"""

import os
import sys
import time

from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.mutations import inputs_of
from tests.fuzz.targets import TARGETS

EXAMPLES = 100


def fuzz(name: str, seconds: float) -> int:
    """Inputs until the time is over; how many. What the target raises is shown by hypothesis."""
    target, stop, rounds = TARGETS[name], time.monotonic() + seconds, 0
    while time.monotonic() < stop:
        rounds += 1

        @seed(rounds)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs_of(name))
        def check(data: bytes) -> None:
            target(data)

        check()
    return rounds * EXAMPLES


def main(names: list[str]) -> None:
    seconds = float(os.environ.get("FUZZ_SECONDS", "300"))
    for name in names:
        count = fuzz(name, seconds)
        print(f"fuzz: {name}: about {count} inputs, none breaks it", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(TARGETS))
