# SPDX-License-Identifier: Apache-2.0
"""Bios: splitting one, joining it to a request, and its end."""

from tests.simulation.clockwork import Sim
from tests.simulation.model import SECTOR, Bio, Rec, Request
from tests.simulation.operations import NOMERGE


def queue_fields(bio: Bio) -> dict[str, int]:
    """What Q alone says."""
    return {"part": bio.part, "cgroup": bio.cgroup, "page": bio.page, "ioprio": 0, "hint": 0}


def cut_front(sim: Sim, cpu: int, bio: Bio, size: int) -> Bio:
    """Splits a front piece off (bio_split): X."""
    front = Bio(sim.memory.take(), bio.dev, bio.sector, size, bio.opf, bio.tid, part=bio.part)
    front.root = bio.root
    front.no_merge = not sim.kernel.fronts_merge
    new = (bio.sector + size // SECTOR) & 0xFFFFFFFF
    sim.bio_record("X", cpu, front, parent=bio.pointer, new_sector=new)
    bio.records.append(front.records[-1])
    bio.sector += size // SECTOR
    bio.bytes -= size
    if front.no_merge:
        front.opf |= NOMERGE
    return front


def join(rq: Request, bio: Bio, *, front: bool) -> None:
    rq.bios.insert(0 if front else len(rq.bios), bio)
    if bio.request is not None:
        bio.request.members.remove(bio)
    rq.members.append(bio)
    bio.request = rq
    bio.requests.append(rq)


def end_piece(sim: Sim, bio: Bio, rec: Rec) -> None:
    """A piece has ended; its whole bio ends with the last one."""
    bio.end = rec
    root = bio.root
    root.open_pieces -= 1
    if bio is not root:
        sim.free_bio(bio)
    if root.open_pieces:
        return
    if root.failure is not None:
        cpu, status, size = root.failure
        sim.now += 100
        end_without_request(sim, cpu, root, status, size)
    elif not root.unsent:
        end_whole(sim, root)


def end_without_request(sim: Sim, cpu: int, bio: Bio, status: int, size: int) -> None:
    """c: bio-based, or failed before a request took it. It waits for fronts that were sent."""
    if bio.open_pieces:
        bio.failure = (cpu, status, size)
        return
    bio.own_end = sim.bio_record("c", cpu, bio, status=status, bytes=size)
    bio.own_status = status
    end_whole(sim, bio)


def end_whole(sim: Sim, root: Bio) -> None:
    """bio_endio of what the submitter sees."""
    if root.ended:
        return
    root.ended = True
    for action in root.after:
        action()
    if root.page and not root.lent_page:
        sim.pages.give(root.page)
    sim.free_bio(root)
