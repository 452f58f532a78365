# SPDX-License-Identifier: Apache-2.0
"""End what a trace's last window leaves in flight."""

from dataclasses import replace

import numpy as np

from biotrail.converters.events.path_tables import PathTables
from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.outputs.perfetto.slices.times import no_stages


def only_open(window: Lifecycles) -> Lifecycles:
    """Return the window without what ended in it: what `of_open` and `without_ended` need.

    It has the open bios and requests, and of the path what is known of the open bios.
    """
    none = np.zeros(0, dtype=np.int64)
    return replace(
        window,
        bios=window.bios.take(none),
        requests=window.requests.take(none),
        edges=window.edges.take(none),
        bio_stages=no_stages(),
        request_stages=no_stages(),
        loss=window.loss.take(none),
        path=None if window.path is None else _of_nothing_ended(window.path),
        sites=None,
    )


def without_ended(window: Lifecycles) -> Lifecycles:
    """Return the window with only those open bios and requests that have not completed.

    The others have ended, although their table is that of open ones, and a later window has them
    among those that ended. A request merged into another has ended, too.
    """
    bios, requests = window.open_bios, window.open_requests
    waits = (requests.complete == NEVER) & (requests.absorbed_by == NEVER)
    return replace(
        window, open_bios=bios.take(bios.complete == NEVER), open_requests=requests.take(waits)
    )


def of_open(window: Lifecycles) -> Lifecycles:
    """Return an empty window at `window.end` with the open bios and requests as ended ones.

    Converting it writes their slices to the trace's end, or to their completion if one is known. It
    has no stages, edges, losses, pairs or hits, and nothing in flight; of the path it has what is
    known of the open bios.
    """
    none = np.zeros(0, dtype=np.int64)
    return replace(
        window,
        begin=window.end,
        bios=window.open_bios,
        requests=window.open_requests,
        edges=window.edges.take(none),
        bio_stages=no_stages(),
        request_stages=no_stages(),
        open_bios=window.open_bios.take(none),
        open_requests=window.open_requests.take(none),
        loss=window.loss.take(none),
        path=None if window.path is None else _path_of_open(window.path),
        sites=None,
    )


def _path_of_open(path: PathTables) -> PathTables:
    """Return the path with the open bios as ended ones.

    Nothing else has rows then, but the tables of bios' requests, which stay.
    """
    none = np.zeros(0, dtype=np.int64)
    return replace(
        _of_nothing_ended(path),
        bios=path.open_bios,
        open_bios=path.open_bios.take(none),
        held=path.open_held,
        open_held=path.open_held.take(none),
    )


def _of_nothing_ended(path: PathTables) -> PathTables:
    """Return the path with rows for open bios alone.

    Ended bios, calls, waits, interrupts, drivers' steps, submissions and commits have none; the
    tables of bios' requests stay.
    """
    none = np.zeros(0, dtype=np.int64)
    return replace(
        path,
        calls=path.calls.take(none),
        waits=path.waits.take(none),
        bios=path.bios.take(none),
        held=path.held.take(none),
        interrupts=path.interrupts.take(none),
        steps=path.steps.take(none),
        submissions=path.submissions.take(none),
        commits=path.commits.take(none),
    )
