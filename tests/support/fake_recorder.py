# SPDX-License-Identifier: Apache-2.0
"""A session that records nothing: the command line gets the summary that it was made with."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.cli import record
from biotrail.recorder.session.session import RecordOptions, Status, Summary


def summary(**others: Any) -> Summary:
    values: dict[str, Any] = {
        "reason": "duration",
        "seconds": 10.0,
        "events": 1_000_000,
        "events_exact": False,
        "log_bytes": 5_000_000,
        "lost": {},
        "too_deep": 0,
        "skipped": {},
        "unwritten_bytes": 0,
        "cpu_seconds": 0.5,
        "max_rss_bytes": 80 << 20,
    }
    return Summary(**{**values, **others})


class Recorder:
    """Stands in for the session."""

    def __init__(self, result: Summary) -> None:
        self.result = result
        self.options: RecordOptions | None = None

    def __call__(self, options: RecordOptions, on_status: Any) -> Summary:
        self.options = options
        if options.output is not None:
            Path(options.output).write_bytes(b"x" * 100)
            if not options.rotate and not options.keep:
                self.result.file_bytes = 100
        on_status(Status(0.0, 0, 0, 0))
        return self.result


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    """`biotrail record` with such a session, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    fake = Recorder(summary())
    monkeypatch.setattr(record, "record", fake)
    return fake
