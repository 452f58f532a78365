# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert` of several recordings to one Perfetto trace with a common timeline.

The timeline is that of one of them, or of another program's trace that they are written beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from biotrail.cli.converting.perfetto import Result, open_lines, written
from biotrail.cli.options.recordings import Recording, alignments
from biotrail.converters.analysis.guests.figures import figures
from biotrail.converters.analysis.guests.guest import Guest
from biotrail.converters.clocks.alignment import Alignment, ByRequests, Clocks
from biotrail.converters.outputs.perfetto.names import Options
from biotrail.converters.outputs.perfetto.packets import Facts
from biotrail.converters.outputs.perfetto.place import Arrows, Crossing
from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.recorder.schema.strings import characters
from biotrail.text import tallies, units
from biotrail.text.alignment import alignment_lines
from biotrail.text.guests import guest_lines
from biotrail.text.progress import progress

if TYPE_CHECKING:
    from biotrail.cli.converting.other_trace import OtherTrace


def crossings(guest: Guest) -> tuple[Crossing, Crossing]:
    """Return (the guest's, the host's): an arrow for each link, and the stages of requests."""
    requests = np.concatenate([d.requests.number[d.links.edges.request] for d in guest.disks])
    bios = np.concatenate([d.served.number[d.links.edges.bio] for d in guest.disks])
    text = f"{guest.guest.log_id} on {guest.host.log_id}"
    base = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    ids = np.arange(len(bios), dtype=np.uint64) + np.uint64(base)  # modulo 2**64
    ids[ids == 0] = 1
    number = np.concatenate([d.requests.number[d.links.timed] for d in guest.disks])
    stages = np.concatenate([d.links.stages[d.links.timed] for d in guest.disks])
    order = np.argsort(number)
    mine = Crossing(requests=Arrows(requests, ids), timed=number[order], stages=stages[order])
    return mine, Crossing(bios=Arrows(bios, ids))


@dataclass
class Aligned:
    """A recording on the common timeline; `alignment` is None if the timeline is its own clock."""

    recording: Recording
    clocks: Clocks
    alignment: Alignment | None
    beside: "OtherTrace | None"
    """How it stands beside another program's trace, whose clock is the timeline; None: there is no
    such trace."""
    crossing: Crossing | None
    label: str = ""
    """Set once it is written."""


def convert(
    recordings: Sequence[Recording],
    target: str,
    force: bool,
    options: Options,
    beside: str | None = None,
    guest: Guest | None = None,
) -> tuple[Result, list[str]]:
    """Write all recordings to one trace; return that, and lines on it.

    The timeline is that of the Perfetto trace `beside`, of a guest's host, or of one of them.
    """
    others: Sequence[OtherTrace | None] = [None] * len(recordings)
    if beside is not None:
        from biotrail.cli.converting.other_trace import other_traces

        others = other_traces(beside, [(each.paths[0], each.trace) for each in recordings])
    clocks = [Clocks.from_trace(each.paths[0], each.trace) for each in recordings]
    besides = [one for one in others if one is not None]
    found: list[Alignment | None] = [one.joined.alignment for one in besides]
    found = found or alignments(clocks, None if guest is None else guest.fit.line)
    drawn = [None] * len(clocks) if guest is None else crossings(guest)
    logs = [
        Aligned(each, own, alignment=how, beside=one, crossing=crossing)
        for each, own, how, one, crossing in zip(
            recordings, clocks, found, others, drawn, strict=True
        )
    ]
    other = others[0]

    def write(out: BinaryIO) -> PerfettoSummary:
        if other is None:
            return _write(logs, out, options)
        return other.written(out, options, lambda: _write(logs, out, options))

    result, _ = written(target, force, write)
    where = "standard output" if result.path is None else str(result.path)
    size = f" ({units.size(result.bytes)})" if result.bytes else ""
    lines = [f"wrote {where}{size}: {units.plural(len(logs), 'recording')} on one timeline"]
    for log in logs:
        trace = log.recording.trace
        log.clocks.compare(trace.context.clocks)
        lines.append(f"{log.label}: {units.plural(trace.account.total, 'event')}")
        lines += [f"  {line}" for line in tallies.certainty_lines(trace)]
        lines += [f"  {line}" for line in tallies.own_lines(trace)]
        lines += [f"  {line}" for line in tallies.loss_lines(trace)] or ["  nothing is missing"]
    if besides:
        lines += max(besides, key=lambda one: one.joined.within).lines()
    else:
        lines += alignment_lines([(log.label, log.clocks, log.alignment) for log in logs])
    if result.warning:
        lines.append(result.warning)
    if result.path is not None:
        lines += open_lines(where, result)
    return result, lines if guest is None else [*lines, *guest_lines(figures(guest))]


def _write(logs: Sequence[Aligned], out: BinaryIO, options: Options) -> PerfettoSummary:
    """Write the logs one after the other to `out`, and set each one's `label`."""
    from biotrail.converters.outputs.perfetto import convert as perfetto
    from biotrail.converters.outputs.perfetto.place import Named, places

    named = []
    for log in logs:
        context = log.recording.trace.context
        host, boot = log.clocks.boot
        aligned = log.alignment is not None
        named.append(Named(context.log_id, host, boot, characters(log.recording.name), aligned))
    total = PerfettoSummary()
    for log, alone in zip(logs, places(named), strict=True):
        log.label = alone.host
        trace, alignment = log.recording.trace, log.alignment
        facts: Facts = {"aligned_by": "its own clock: the trace's"}
        if alignment is not None:
            how = "the same boot's clock" if alignment.same_boot else "wall clock"
            how = "requests that both recorded" if isinstance(alignment, ByRequests) else how
            facts = {"aligned_by": how, "aligned_within_ns": alignment.uncertainty}
        placed = replace(alone, facts=facts, crossing=log.crossing)
        if log.beside is not None:
            placed = log.beside.placed(placed)
        place = replace(placed, sequences=total.sequences, families=total.families)
        with progress(trace, place.host) as lifecycles:
            windows = lifecycles if alignment is None else map(alignment.lifecycles, lifecycles)
            part = perfetto.convert(
                windows,
                trace.context,
                out,
                stacks=trace.stacks,
                place=place,
                blame=True,
                options=options,
            )
        total.sequences += part.sequences
        total.families += part.families
        total.bytes += part.bytes
        views = [view for view in (total.view, part.view) if view is not None]
        total.view = max(views, key=lambda view: view.latency, default=None)
    return total
