# SPDX-License-Identifier: Apache-2.0
"""What reading a file cost, in bytes: counted, so that it is the same on any machine."""

import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from biotrail.converters.inputs.blktrace import files as blktrace_files
from biotrail.converters.inputs.parquet import source as archive
from biotrail.converters.inputs.unpacking import RATIO, SLACK, Allowance
from biotrail.recorder.log import frames
from biotrail.recorder.log.source import Source


@dataclass
class Cost:
    """Bytes read from a file, checksummed, and gained by decompressing; rows of archives.

    searched: bytes in which blktrace's records were looked for. gained: of logs' payloads.
    unpacked: bytes gained of other tools' recordings, nested ones too. used: what events among
    these allow to be unpacked beside. events: of row groups.
    """

    read: int = 0
    checksummed: int = 0
    searched: int = 0
    gained: int = 0
    unpacked: int = 0
    used: int = 0
    events: int = 0

    @property
    def looked_at(self) -> int:
        """Bytes of the file that were handled, each as often as it was."""
        return self.read + self.checksummed + self.searched


class Counting(io.BytesIO):
    """A file in memory that counts what is read of it."""

    def __init__(self, data: bytes, cost: Cost) -> None:
        super().__init__(data)
        self._cost = cost

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self._cost.read += len(data)
        return data


@contextmanager
def counted() -> Iterator[Cost]:
    """Count what is done within, in logs and other recordings, but for `read`.

    `read` is counted for logs; for other files, who reads them gives a `Counting`.
    """
    cost = Cost()
    allowances: dict[int, Allowance] = {}

    def count(owner: Any, name: str, add: Any) -> Any:
        original = getattr(owner, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            add(arguments, result)
            return result

        return mock.patch.object(owner, name, counting)

    def checksummed(arguments: Any, result: int) -> None:
        cost.checksummed += len(arguments[0])

    def read(arguments: Any, result: bytes) -> None:
        cost.read += len(result)

    def gained(arguments: Any, result: bytes) -> None:
        cost.gained += len(result) if arguments[1].codec else 0

    def searched(arguments: Any, result: object) -> None:
        cost.searched += len(arguments[0])

    def unpacked(arguments: Any, result: None) -> None:
        cost.unpacked += arguments[1]
        allowances[id(arguments[0])] = arguments[0]

    def rows(arguments: Any, result: Any) -> None:
        cost.events += len(result[0])

    with ExitStack() as stack:
        for owner, name, add in (
            (zlib, "crc32", checksummed),
            (Source, "read_at", read),
            (Source, "payload", gained),
            (Allowance, "add", unpacked),
            (blktrace_files, "find_records", searched),
            (archive.arrow, "read_events", rows),
        ):
            stack.enter_context(count(owner, name, add))
        yield cost
        cost.used = sum(allowance.used for allowance in allowances.values())


def check(data: bytes, cost: Cost) -> None:
    """That one reading of a file handled a few times its size, whatever stands in it.

    Small files may cost a little more: a block is read at once.
    """
    assert cost.looked_at <= MOST_READ * len(data) + SMALL, (cost, len(data))
    assert cost.gained <= frames.MAX_RATIO * len(data), (cost, len(data))
    # Perfetto's traces are read twice.
    assert cost.unpacked <= 2 * (SLACK + RATIO * len(data)) + cost.used, (cost, len(data))
    assert cost.events <= archive.MOST_EVENTS_A_BYTE * len(data), (cost, len(data))


MOST_READ = 16
SMALL = 4096
