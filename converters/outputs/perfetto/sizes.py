# SPDX-License-Identifier: Apache-2.0
"""Reckon how large a trace becomes, before it is written.

Bytes as docs/perfetto.md has them, of random reads of 4 KiB. Real loads differ by a fifth or so:
longer times and larger numbers take more bytes, merged bios have fewer requests.
"""

from dataclasses import dataclass

from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.perfetto.names import Detail, Options


@dataclass(frozen=True)
class _Costs:
    """Bytes of each bio, each of its stages, each request and each of its stages."""

    bio: int
    stage: int
    request: int = 0
    request_stage: int = 0


_COSTS = {
    Detail.FULL: _Costs(158, 27, 114, 27),
    Detail.STANDARD: _Costs(38, 27, 30),
    Detail.STAGES: _Costs(30, 27),
    Detail.BIOS: _Costs(30, 0),
}
_CALL = {Detail.FULL: 100, Detail.STANDARD: 31, Detail.STAGES: 31, Detail.BIOS: 0}
_SUBMISSION = {Detail.FULL: 180, Detail.STANDARD: 32, Detail.STAGES: 32, Detail.BIOS: 0}
_WAIT, _INTERRUPT, _PAIR, _HIT = 54, 139, 60, 80
"""Bytes of what is drawn besides; interrupts with full detail alone, but for the longest."""
_FTRACE, _FLOWS = 54, 110
"""Bytes of a request's block_io_start and block_io_done, and of a bio's arrows (with the path)."""


def expected(window: Lifecycles, options: Options) -> int:
    """Return about how many bytes a window's slices take, when drawn as `convert` would."""
    detail = options.detail
    costs = _COSTS[detail]
    total = costs.bio * len(window.bios) + costs.stage * len(window.bio_stages.owner)
    if detail.requests:
        total += (costs.request + _FTRACE * options.ftrace) * len(window.requests)
    total += costs.request_stage * len(window.request_stages.owner)
    if (path := window.path) is not None:
        calls, io = path.calls, path.calls.with_io | options.every_call
        total += _FLOWS * len(window.bios) * (options.every_arrow and detail.requests)
        total += _CALL[detail] * int(io.sum()) + _INTERRUPT * len(path.interrupts) * (
            detail == Detail.FULL
        )
        total += _SUBMISSION[detail] * len(path.submissions)
        if detail != Detail.BIOS:
            total += _WAIT * int(calls.waits[io].sum())
    if (sites := window.sites) is not None:
        total += _PAIR * len(sites.pairs) + _HIT * len(sites.hits)
    return total
