# SPDX-License-Identifier: Apache-2.0
"""What a recording of tracepoints lacks, and what that costs, for the user."""

from collections.abc import Collection

from biotrail.converters.inputs.foreign import WITHOUT_BIOS

_BEGINNINGS = ("block_getrq", "block_io_start", "block_rq_insert")
"""Tracepoints of requests that are not issued yet."""

_COSTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("block_rq_complete",),
        "no request and no bio of one ends, so there are no latencies of them",
    ),
    (("block_rq_issue",), "I/O in queues cannot be told from I/O at the device"),
    (
        ("block_bio_queue",),
        WITHOUT_BIOS,
    ),
    (
        _BEGINNINGS,
        "a request begins when it is issued; the time in queues is not divided",
    ),
    (
        ("block_bio_backmerge", "block_bio_frontmerge"),
        "which bios a merged request serves is known by sectors alone",
    ),
    (("block_split",), "bios that were split end with one of their pieces, or not at all"),
    (
        ("block_bio_remap",),
        "partitions and the devices below dm and md are not linked to what was sent to them",
    ),
    (
        ("block_bio_complete",),
        "bios of devices without requests (dm, md, zram) do not end",
    ),
    (("block_rq_requeue",), "a request that the driver returned seems to be issued twice"),
    (("block_rq_merge",), "requests that were merged into others do not end"),
)
"""Tracepoints of which one would do, and what it costs that all of them are missing."""
_OF_BIOS = ("block_bio_backmerge", "block_split", "block_bio_remap", "block_bio_complete")
"""First tracepoints of rows that say nothing new where bios are not recorded."""


def remarks_on(recorded: Collection[str], *, enabled: bool) -> list[str]:
    """Return a sentence for each event that is not recorded and what that costs.

    recorded: names of tracepoints that the recording has. enabled: they are those that were
    enabled; False: those that occur, as the recording does not say which were enabled.
    """
    how = "was not recorded" if enabled else "does not occur"
    hows = "were not recorded" if enabled else "do not occur"
    found = []
    for names, cost in _COSTS:
        if set(names) & set(recorded):
            continue
        if names[0] in _OF_BIOS and "block_bio_queue" not in recorded:
            continue
        if names[0] == "block_rq_merge" and not set(_BEGINNINGS) & set(recorded):
            continue
        # What does not occur in I/O that needs none of it is no limit of the recording.
        if not enabled and names[0] not in (
            "block_rq_complete",
            "block_rq_issue",
            "block_bio_queue",
        ):
            continue
        found.append(f"{' and '.join(names)} {how if len(names) == 1 else hows}: {cost}")
    return found
