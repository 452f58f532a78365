# SPDX-License-Identifier: Apache-2.0
"""Records by hand, as rings hold them and chunks bring them."""

from typing import Any

from biotrail.recorder.log import Chunk, Segment
from biotrail.recorder.schema.records import TIMESTAMP_BITS, Kind
from tests.support import captures, log_samples, stack_logs

NOW = captures.BASE_NS
ring = log_samples.ring
MASK = (1 << TIMESTAMP_BITS) - 1


def record(kind: int, ns: int, size: int | None = None, **values: Any) -> bytes:
    """A record of `kind` at NOW + ns; of an unknown kind: `size` bytes."""
    head = int(kind) << TIMESTAMP_BITS | (NOW + ns) & MASK
    if size is not None:
        return head.to_bytes(8, "little") + b"\x55" * (size - 8)
    return stack_logs.record(Kind(kind), NOW + ns & MASK, **values)


def chunk(*segments: Segment, now: int = NOW) -> Chunk:
    clock = captures.clock() | {"monotonic": now}
    return Chunk(offset=0, sequence=0, first_ns=0, last_ns=now, clock=clock, segments=[*segments])
