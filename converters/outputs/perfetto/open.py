# SPDX-License-Identifier: Apache-2.0
"""End what a trace's last window leaves in flight."""

from dataclasses import replace

import numpy as np

from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.outputs.perfetto.slices import no_stages


def unended(window: Lifecycles) -> Lifecycles:
    """Return the window with only those open bios and requests that have not completed.

    The others have ended, and a later window has them. Requests merged into another have ended,
    too.
    """
    bios, requests = window.open_bios, window.open_requests
    waits = (requests.complete == NEVER) & (requests.absorbed_by == NEVER)
    return replace(
        window, open_bios=bios.take(bios.complete == NEVER), open_requests=requests.take(waits)
    )


def left_over(window: Lifecycles) -> Lifecycles:
    """Return an empty window at `window.end` whose bios and requests are the open ones of `window`.

    Converting it writes their slices to the trace's end. It has no stages, edges or losses.
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
    )
