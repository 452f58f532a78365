# SPDX-License-Identifier: Apache-2.0
"""What a trace of a guest's and its host's logs draws between them."""

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from biotrail.converters.outputs.perfetto.tracks.place import Arrows, Crossing

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.guest import Guest


def crossings(guest: "Guest") -> tuple[Crossing, Crossing]:
    """Return (the guest's, the host's): an arrow for each link, and the stages of requests."""
    requests = np.concatenate([d.asked.number[d.links.edges.request] for d in guest.disks])
    bios = np.concatenate([d.served.number[d.links.edges.bio] for d in guest.disks])
    text = f"{guest.guest.log_id} on {guest.host.log_id}"
    base = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    ids = np.arange(len(bios), dtype=np.uint64) + np.uint64(base)  # modulo 2**64
    ids[ids == 0] = 1
    number = np.concatenate([d.asked.number[d.links.timed] for d in guest.disks])
    stages = np.concatenate([d.links.stages[d.links.timed] for d in guest.disks])
    order = np.argsort(number)
    mine = Crossing(requests=Arrows(requests, ids), timed=number[order], stages=stages[order])
    return mine, Crossing(bios=Arrows(bios, ids))
