# SPDX-License-Identifier: Apache-2.0
"""Show a guest's requests on its host: the clocks, the stages, what has no I/O on the host."""

from collections.abc import Iterator

from rich.table import Table

from biotrail.converters.analysis.guests.figures import Figures
from biotrail.text import units
from biotrail.text.columns import columns_of, table

STAGE_MEANINGS = {
    "to host": "the guest's D to the host's Q: the hypervisor's threads and queues, io.max",
    "host queue": "the host's Q to its D: its scheduler or tags, dm and md",
    "host device": "the host's D to its completion: its driver and disk",
    "from host": "the host's completion to the guest's C: threads, interrupts, virtual CPUs",
}
"""Stage inside the guest's D2C → from where to where, and what can make it long."""
_COLUMNS = columns_of(
    "disk < | behind it < | operation < | stage < | share | mean | p50 @1 | p99 | max"
)


def stage_table(figures: Figures, width: int) -> Table:
    rows = [
        [row.disk, row.behind, row.operation, one.stage, f"{one.share:.1%}",
         *map(units.duration, (one.mean_ns, one.p50_ns, one.p99_ns, one.max_ns))]
        for row in figures.rows
        for one in row.stages
    ]  # fmt: skip
    return table("Inside the guest's D2C, by the host's clock", _COLUMNS, rows, width)


def guest_lines(figures: Figures) -> Iterator[str]:
    """Yield how the guest's requests were linked, how the clocks were aligned, and what is open."""
    yield f"guest of process {figures.pid} ({figures.process}):"
    for row in figures.rows:
        doubtful = f"; in no stage {units.count(row.doubtful)} in doubt" if row.doubtful else ""
        yield (
            f"  {row.disk} on {row.behind}, {row.operation}: {units.count(row.linked)} of "
            f"{units.plural(row.requests, 'request')} linked, to {units.plural(row.bios, 'bio')}"
            f"{doubtful}"
        )
    sure = ", ".join(f"{units.count(n)} {name}" for name, n in sorted(figures.certainty.items()))
    if sure:
        yield f"  links: {sure}"
    for reason, number in figures.unlinked.items():
        requests = units.plural(number, "request")
        yield f"  {requests} without I/O on the host: {reason}"
    for name in figures.unmatched:
        yield f"  {name}: on no device that the host recorded for this process"
    yield (
        f"  clocks: aligned within {units.duration(figures.within_ns)} by "
        f"{units.plural(figures.bounds, 'request')}; the guest's goes "
        f"{abs(figures.drift_ppm):.3g} ppm {'slow' if figures.drift_ppm > 0 else 'fast'}"
    )
    if figures.contradicting:
        contradicting = units.plural(figures.contradicting, "request")
        yield f"  note: {contradicting} contradict this, and were left out of the alignment"
