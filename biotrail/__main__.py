# SPDX-License-Identifier: Apache-2.0
"""The beginning of the command: Ctrl-C ends it quietly, also while its modules are imported."""

import sys


def main() -> None:
    try:
        from biotrail.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # biotrail.cli.options.ending.INTERRUPTED_STATUS, perhaps not imported yet


if __name__ == "__main__":
    main()
