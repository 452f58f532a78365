# SPDX-License-Identifier: Apache-2.0
"""The figures of a report on io_uring and aio."""

from dataclasses import dataclass
from typing import Annotated

from biotrail.converters.analysis.figures import Shown, StageTimes, Summary


@dataclass
class SubmissionReport:
    """Requests of io_uring or iocbs of aio of one operation that queued bios."""

    operation: str
    """read, writev, fsync, … of io_uring; aio read, aio write."""
    count: int
    modes: dict[str, int]
    """inline, worker, sqpoll, kernel: who queued the first bio → number of submissions."""
    completed: int
    """Those of them whose completion was recorded."""
    failed: int
    errors: dict[str, int]
    """Name of the error → number of completions with it."""
    bios: int
    bytes: int
    """Sum of the lengths of the bios."""
    time: Summary
    """ns from the submission to the completion, where both are known."""
    steps: Annotated[list[StageTimes], Shown(rename={"stage": "step"})]
    """Steps of submissions.STEPS that have a time. A share is of the sum of `time`, to which the
    first three add up where all are known."""
