# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of one target, by atheris: fuzz.py TARGET [libFuzzer's arguments].

`make fuzz` runs it for every target. What it finds that is new it adds to the first directory
given; an input that breaks something is written to `crash-…`, and its traceback is printed.
"""

import logging
import sys


def main() -> None:
    try:
        import atheris
    except ImportError:
        sys.exit(
            "fuzz: atheris is not installed: .venv/bin/pip install -e .[fuzz] (it has wheels for "
            "Linux and CPython 3.11 to 3.13); `make test` fuzzes without it, for a short time"
        )
    with atheris.instrument_imports(include=["biotrail"]):
        from tests.fuzz.targets import TARGETS
    logging.disable(logging.CRITICAL)
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
