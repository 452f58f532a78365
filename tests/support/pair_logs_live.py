# SPDX-License-Identifier: Apache-2.0
"""Records declared pairs around a command, and reads the log's table of pairs."""

from collections.abc import Sequence
from pathlib import Path

from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.pipeline import Trace
from tests.support.record_command import biotrail


def recorded_pairs(
    path: Path, words: Sequence[str], command: Sequence[str | Path]
) -> tuple[Pairs, str]:
    """Run `biotrail pairs WORDS -o PATH -- COMMAND`; the log's pairs, and what the command printed.

    Fails where the recording fails or loses records.
    """
    run = biotrail("pairs", *words, "-o", path, "--", *command)
    assert "LOST" not in run.stderr, run.stderr
    found = [window.sites.pairs for window in Trace(path).lifecycles() if window.sites]
    return Pairs.concatenate(found), run.stdout
