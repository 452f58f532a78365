# SPDX-License-Identifier: Apache-2.0
"""What records say of the kernel that wrote them, where fields meant something else there.

docs/inputs.md has the table of what means what on which kernel.
"""

import numpy as np

from biotrail.converters.inputs.tracepoints.rows import TracepointRows
from biotrail.converters.inputs.tracepoints.translate import is_no_errno
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.records import Kind

WITHOUT_BIO = "block_getrq without a bio"
"""Name under which G of passthrough is counted."""


class OldKernels:
    """Counts records that only older kernels write so, and says what that costs."""

    def __init__(self) -> None:
        self._without_size = 0
        self._odd_errors = 0
        self._has_errors = False

    def read(self, rows: TracepointRows) -> TracepointRows:
        """Take in the rows of one tracepoint; return those that are of a bio or request.

        Before 5.11 passthrough has a getrq of its own: without a bio, so on device 0.
        """
        kind, columns = KIND_OF[rows.event], rows.columns
        if "bytes" in columns:
            empty = (columns["bytes"] == 0) & (columns["nr_sector"] != 0)
            self._without_size += int(np.count_nonzero(empty))
        if kind == Kind.C:
            self._has_errors |= "errors" in columns and len(rows) > 0
        if kind == Kind.BIO_COMPLETE and "error" in columns:
            self._odd_errors += int(np.count_nonzero(is_no_errno(columns["error"])))
        if kind == Kind.G and (bare := columns["dev"] == 0).any():
            return rows.without(bare)
        return rows

    def remarks(self) -> list[str]:
        """Return a sentence for each thing that is not known of such a recording."""
        found = []
        if self._without_size:
            found.append(
                f"{self._without_size} records of requests have 0 bytes, as Linux before 4.11 "
                "writes of reads and writes: their sizes follow from their sectors"
            )
        if self._has_errors or self._without_size:
            found.append(
                "of Linux before 4.12, by the fields: which requests failed is mostly not known, "
                "since `errors` is 0 of reads and writes; before 4.8 discards are writes (W) there"
            )
        if self._odd_errors:
            found.append(
                f"{self._odd_errors} completions of bios have an `error` that is none, as Linux "
                "before 2.6.38 leaves it unset: whether they failed is not known"
            )
        return found
