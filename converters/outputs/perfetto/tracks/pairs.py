# SPDX-License-Identifier: Apache-2.0
"""Tracks of pairs of events."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PairTrack:
    """A track of pairs: the pair's number and name, and the key as text, or OTHERS."""

    pair: int
    name: str
    key: str
    rank: int
    """Place among the tracks of the pair."""
