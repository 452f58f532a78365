# SPDX-License-Identifier: Apache-2.0
"""Makes a seeded counterexample small: groups of I/O that do not matter never happened.

A group is what ever shared a request, a split or a merge; without it, the rest is still a
history that could have happened, with the same truth.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.simulation.model import Bio, History, Rec, Request


def groups(history: History) -> list[tuple[set[Bio], set[Request]]]:
    left_bios, left_requests = list(history.bios), set(history.requests)
    found = []
    while left_bios or left_requests:
        bios: set[Bio] = set()
        requests: set[Request] = set()
        if left_bios:
            bios.add(left_bios[0])
        else:
            requests.add(next(iter(left_requests)))
        while True:
            more = {r for b in bios for p in b.pieces for r in p.requests}
            roots = {b for b in left_bios for p in b.pieces if requests.intersection(p.requests)}
            # What was sent below goes with what it was made for.
            above = {b.upper.root for b in bios if b.upper is not None}
            below = {b for b in left_bios if b.upper is not None and b.upper.root in bios}
            roots |= (above | below).intersection(left_bios)
            if more <= requests and roots <= bios:
                break
            requests |= more
            bios |= roots
        left_bios = [b for b in left_bios if b not in bios]
        left_requests -= requests
        found.append((bios, requests))
    return found


def without(history: History, bios: set[Bio], requests: set[Request]) -> History:
    """The history as if these had never been."""
    gone: set[Rec] = {r for q in requests for r in q.records}
    for bio in bios:
        for piece in (bio, *bio.pieces):
            gone |= set(piece.records)
    kept = [(at, [r for r in records if r not in gone]) for at, records in history.chunks]
    return replace(
        history,
        bios=[b for b in history.bios if b not in bios],
        requests=[r for r in history.requests if r not in requests],
        records=[r for r in history.records if r not in gone],
        recorded=history.recorded - gone,
        chunks=kept,
    )


def reduce(history: History, bad: Callable[[History], bool]) -> History:
    """The smallest history found that is still bad."""
    plain = [(at, [r for r in records if r.letter not in "TPU"]) for at, records in history.chunks]
    recorded = {r for _, records in plain for r in records}
    bare = replace(history, chunks=plain, recorded=recorded)
    history = bare if bad(bare) else history
    together = replace(history, chunks=[(at, []) for at, _ in history.chunks[:-1]])
    if history.chunks:
        every = [r for _, records in history.chunks for r in records]
        together.chunks.append((history.chunks[-1][0], sorted(every, key=lambda r: r.ts)))
        history = together if bad(together) else history
    progress = True
    while progress:
        progress = False
        for bios, requests in groups(history):
            smaller = without(history, bios, requests)
            if bad(smaller):
                history, progress = smaller, True
    return history
