# SPDX-License-Identifier: Apache-2.0
"""Followed lives of a slow I/O: those of its requests, or of its bios (docs/follow.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biotrail.converters.events.tables import Lifecycles

MOST_LIVES = 20
"""Lives of an I/O that are listed; a bio of a stacked device may have many requests."""


@dataclass
class FollowedLife:
    """A followed life that belongs to an I/O."""

    life: int
    """Its number, as `biotrail tree --life` takes it."""
    number: int
    """Number of the request or, where bios are followed, of the bio."""


def followed_lives(
    window: Lifecycles, kind: str, bios: Sequence[int], requests: Sequence[int]
) -> list[FollowedLife]:
    """Return the lives of an I/O, in the order of their numbers, at most MOST_LIVES.

    window: in which the I/O ended. kind: the struct that the log follows. bios: numbers of the
    I/O's bio and of those on lower devices that serve it. requests: numbers of the bio's requests;
    those that served the other bios are looked up.
    """
    found = None if window.sites is None else window.sites.joined
    if found is None or not len(found):
        return []
    wanted = np.array(bios, np.int64)
    if kind == "request":
        edges = window.edges
        served = edges.request[np.isin(edges.bio, wanted)]
        wanted = np.concatenate([served, np.array(requests, np.int64)])
    rows = np.flatnonzero(np.isin(found.number, wanted))
    rows = rows[np.argsort(found.life[rows])][:MOST_LIVES]
    pairs = zip(found.life[rows].tolist(), found.number[rows].tolist(), strict=True)
    return [FollowedLife(life, number) for life, number in pairs]
