# SPDX-License-Identifier: Apache-2.0
"""What a trace's last window leaves open."""

from dataclasses import replace

import numpy as np

from biotrail.converters.events.tables import NEVER, Lifecycles
from biotrail.converters.outputs.perfetto.slices import no_stages


def unended(window: Lifecycles) -> Lifecycles:
    """The window without what is open only because the model has not let go of it."""
    bios, requests = window.open_bios, window.open_requests
    waits = (requests.complete == NEVER) & (requests.absorbed_by == NEVER)
    return replace(
        window, open_bios=bios.take(bios.complete == NEVER), open_requests=requests.take(waits)
    )


def left_over(window: Lifecycles) -> Lifecycles:
    """A window that ends what the last one left open, though no later one came."""
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
