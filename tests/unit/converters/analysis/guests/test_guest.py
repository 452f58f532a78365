# SPDX-License-Identifier: Apache-2.0
"""A guest's requests on its host: links, clocks and stages against transfers that are known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.guests.figures import figures
from biotrail.converters.analysis.guests.guest import Guest, join
from biotrail.converters.analysis.guests.image import Extents, Mapping
from biotrail.converters.analysis.guests.links import Unlinked
from biotrail.converters.events.tables import Certainty
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError
from tests.support.captures import BASE_NS
from tests.support.guest_logs import (
    HOST_NAME,
    HOST_PID,
    MICROSECOND,
    MILLISECOND,
    Clock,
    Transfer,
    merged,
    transfers,
    write,
)

SECOND = 1_000_000_000
CLOCK = Clock(behind=-37 * SECOND, fast=40e-6)


def joined(
    path: Path, moved: list[Transfer], clock: Clock = CLOCK, mapping: Mapping | None = None
) -> Guest:
    guest, host = write(path, moved, clock)
    return join(Trace(guest), Trace(host), HOST_NAME, mapping or Mapping())


def stages(found: Guest) -> list[list[int]]:
    """In the order of the transfers."""
    (disk,) = found.disks
    return disk.links.stages[np.argsort(disk.requests.issue)].tolist()


@pytest.mark.parametrize(
    "clock",
    [
        Clock(),
        CLOCK,
        Clock(behind=900 * SECOND, fast=-400e-6),
        Clock(behind=-1, fast=300e-6),
    ],
)
def test_requests_and_stages_are_those_of_the_truth(tmp_path: Path, clock: Clock) -> None:
    # GIVEN logs of 400 transfers, of a guest whose clock is off and drifts
    moved = transfers(400)
    # WHEN they are joined
    found = joined(tmp_path, moved, clock)
    # THEN each request has its own bio, for certain
    (disk,) = found.disks
    assert (disk.links.unlinked == Unlinked.LINKED).all()
    assert (disk.links.certainty == Certainty.EXACT).all()
    edges = disk.links.edges
    assert (disk.requests.sector[edges.request] == disk.served.sector[edges.bio]).all()
    # AND the stages are the truth's, as far as the clocks' bound
    line = found.agreement.fit.line
    assert 0 < line.within < 30 * MICROSECOND
    for one, (to_host, queue, device, from_host) in zip(moved, stages(found), strict=True):
        assert abs(to_host - one.to_host) <= line.within
        assert (queue, device) == (2000, one.on_host - 2000)
        assert abs(from_host - one.from_host) <= line.within
    assert found.agreement.contradicting == 0


def test_drift_is_measured(tmp_path: Path) -> None:
    # GIVEN a guest whose clock is fast by 100 ppm, for 20 s
    moved = transfers(1000, apart=20 * MILLISECOND)
    # WHEN the logs are joined
    line = joined(tmp_path, moved, Clock(5 * SECOND, 100e-6)).agreement.fit.line
    # THEN the host's is slow by as much, within the bound over that time
    assert abs(line.rate * 1e6 + 100) < line.within * 2 / 20e3


def test_a_request_that_the_host_splits_has_several_bios(tmp_path: Path) -> None:
    # GIVEN a request of 64 sectors that the host sends as 40 and 24
    moved = transfers(50)
    moved[20] = replace(moved[20], sector=1 << 21, sectors=64,
                        pieces=((1 << 21, 40), ((1 << 21) + 40, 24)))  # fmt: skip
    # WHEN the logs are joined
    (disk,) = joined(tmp_path, moved).disks
    # THEN it is linked to both, and its host stage is from the first Q to the last C
    row = int(np.flatnonzero(disk.requests.sectors == 64)[0])
    edges = disk.links.edges.take(disk.links.edges.request == row)
    assert sorted(edges.sectors.tolist()) == [24, 40]
    assert disk.links.certainty[row] == Certainty.EXACT
    assert disk.links.stages[row, 1:3].sum() == moved[20].on_host


def test_neighbours_that_the_hypervisor_merges_share_a_bio(tmp_path: Path) -> None:
    # GIVEN two neighbouring writes at once, of which the host has one bio
    moved = transfers(50)
    first = Transfer(60 * MILLISECOND, 1 << 21, op="W")
    second = replace(first, at=first.at + 1000, sector=first.sector + 8)
    moved += merged(first, second)
    # WHEN the logs are joined
    (disk,) = joined(tmp_path, moved).disks
    # THEN both are linked to it, each with its sectors
    rows = np.flatnonzero(disk.requests.sector >= 1 << 21)
    edges = disk.links.edges.take(np.isin(disk.links.edges.request, rows))
    assert len(rows) == 2
    assert len(set(edges.bio.tolist())) == 1
    assert edges.sectors.tolist() == [8, 8]
    assert (disk.links.certainty[rows] == Certainty.EXACT).all()


def test_what_the_hosts_page_cache_answers_is_named(tmp_path: Path) -> None:
    # GIVEN every fourth request without I/O on the host
    moved = [replace(one, pieces=() if at % 4 == 2 else None)
             for at, one in enumerate(transfers(100))]  # fmt: skip
    # WHEN the logs are joined
    found = joined(tmp_path, moved)
    # THEN these alone are unlinked, with that reason
    (disk,) = found.disks
    unlinked = disk.links.unlinked == Unlinked.NO_HOST_IO
    assert int(unlinked.sum()) == 25
    assert (disk.links.unlinked[~unlinked] == Unlinked.LINKED).all()
    assert list(figures(found).unlinked.values()) == [25]


def test_requests_outside_of_the_hosts_recording_are_named(tmp_path: Path) -> None:
    # GIVEN three requests after the end of the host's recording
    late = [replace(one, at=one.at + SECOND, pieces=()) for one in transfers(3, seed=9)]
    # WHEN the logs are joined
    (disk,) = joined(tmp_path, [*transfers(50), *late]).disks
    # THEN these are said to be outside of it
    assert (disk.links.unlinked[disk.requests.issue.argsort()][-3:] == Unlinked.OUTSIDE).all()


def test_requests_in_a_loss_of_the_host_are_named(tmp_path: Path) -> None:
    # GIVEN a request whose bio the host's log lost
    moved = transfers(50)
    moved[20] = replace(moved[20], pieces=())
    guest, _ = write(tmp_path, moved)
    begin = BASE_NS + moved[20].at
    (tmp_path / "lossy").mkdir()
    lost = {"start": begin, "end": begin + MILLISECOND, "cpu": 0, "kind": 0, "count": 3}
    _, host = write(tmp_path / "lossy", moved, losses=[lost])
    # WHEN the logs are joined  THEN that is the reason
    (disk,) = join(Trace(guest), Trace(host), HOST_NAME, Mapping()).disks
    unlinked = disk.links.unlinked
    assert unlinked[unlinked != Unlinked.LINKED].tolist() == [Unlinked.HOST_LOST]


def test_a_partly_cached_request_is_incomplete(tmp_path: Path) -> None:
    # GIVEN a request half of which the host reads
    moved = transfers(50)
    moved[7] = replace(moved[7], pieces=((moved[7].sector, 4),))
    # WHEN the logs are joined
    (disk,) = joined(tmp_path, moved).disks
    # THEN its link is incomplete, and the others are exact
    odd = disk.links.certainty != Certainty.EXACT
    assert disk.links.certainty[odd].tolist() == [Certainty.INCOMPLETE]


def test_two_requests_for_one_sector_at_once_are_ambiguous(tmp_path: Path) -> None:
    # GIVEN two reads of one sector at the same time
    moved = transfers(50)
    slow = Transfer(70 * MILLISECOND, 1 << 21, on_host=MILLISECOND)
    moved += [slow, replace(slow, at=slow.at + 1000, on_host=slow.on_host - 3000)]
    # WHEN the logs are joined
    (disk,) = joined(tmp_path, moved).disks
    # THEN which bio is whose is said to be open
    rows = disk.requests.sector == 1 << 21
    assert (disk.links.certainty[rows] == Certainty.AMBIGUOUS).any()
    assert (disk.links.certainty[~rows] == Certainty.EXACT).all()


def test_flushes_are_linked_by_their_time(tmp_path: Path) -> None:
    # GIVEN a flush between other requests
    moved = [*transfers(50), Transfer(80 * MILLISECOND, 0, 0, "FF")]
    # WHEN the logs are joined
    found = joined(tmp_path, moved)
    # THEN it has the host's flush
    (row,) = [row for row in figures(found).rows if row.operation == "flush"]
    assert (row.requests, row.linked, row.bios) == (1, 1, 1)


def test_a_delay_of_the_host_is_in_its_stage(tmp_path: Path) -> None:
    # GIVEN a write that the host's device held for 300 ms
    moved = transfers(50)
    moved[30] = replace(moved[30], on_host=300 * MILLISECOND)
    # WHEN the logs are joined
    found = joined(tmp_path, moved)
    # THEN the slowest request has that time with the host's device
    slowest = max(stages(found), key=sum)
    assert slowest[2] == 300 * MILLISECOND - 2000


def test_the_same_sectors_again_and_again_are_told_apart_by_their_order(tmp_path: Path) -> None:
    # GIVEN 300 requests for 5 places, as a journal's
    moved = [replace(one, sector=8 * (at % 5)) for at, one in enumerate(transfers(300))]
    # WHEN the logs are joined
    found = joined(tmp_path, moved, Clock(2 * SECOND, 20e-6))
    # THEN each request has a bio of its own
    (disk,) = found.disks
    assert (disk.links.unlinked == Unlinked.LINKED).all()
    assert len(set(disk.links.edges.bio.tolist())) == 300


def test_an_image_in_a_file_is_found_by_its_extents(tmp_path: Path) -> None:
    # GIVEN an image of which the first half is at 1,000,000 on the device, the second at 4096
    half = 1 << 19
    there = lambda at: at + 1_000_000 if at < half else at - half + 4096  # noqa: E731
    moved = [replace(one, pieces=((there(one.sector), 8),)) for one in transfers(200)]
    extents = Extents.of([(0, 1_000_000, half), (half, 4096, half)])
    # WHEN the logs are joined by these extents
    found = joined(tmp_path, moved, mapping=Mapping((extents,)))
    # THEN all is linked, at the image's own sectors
    (disk,) = found.disks
    assert (disk.links.certainty == Certainty.EXACT).all()
    assert (disk.links.unlinked == Unlinked.LINKED).all()


def test_io_of_other_processes_is_not_the_guests(tmp_path: Path) -> None:
    # GIVEN another process that reads the same sectors at other times
    others = [replace(one, at=one.at + 77, pid=HOST_PID + 1) for one in transfers(60)]
    guest, _ = write(tmp_path, transfers(60))
    (tmp_path / "both").mkdir()
    _, host = write(tmp_path / "both", [*transfers(60), *others], name="same")
    # WHEN the process is named by its id  THEN only its bios count
    (disk,) = join(Trace(guest), Trace(host), str(HOST_PID), Mapping()).disks
    assert (disk.links.certainty == Certainty.EXACT).all()
    # AND a name that both have is refused
    with pytest.raises(ConversionError, match=f"give one of {HOST_PID}, {HOST_PID + 1}"):
        join(Trace(guest), Trace(host), "same", Mapping())


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    # GIVEN a guest's log, and a host's with other I/O
    guest, _ = write(tmp_path, transfers(100, seed=1))
    (tmp_path / "other").mkdir()
    _, host = write(tmp_path / "other", transfers(100, seed=2))
    # WHEN they are joined  THEN it is said that no disk was found, and what to do
    with pytest.raises(ConversionError, match=r"no disk of the guest .*docs/guests\.md"):
        join(Trace(guest), Trace(host), HOST_NAME, Mapping())
    with pytest.raises(ConversionError, match="no such process"):
        join(Trace(guest), Trace(host), "bhyve", Mapping())


WORKER = {"pid": 31, "comm": "kworker/1:1"}


def test_bios_that_a_cgroups_limit_held_are_the_processs(tmp_path: Path) -> None:
    # GIVEN transfers in a cgroup, some of which a limit held: a worker queued them, 50 ms later
    moved = [replace(one, cgroup=1581) for one in transfers(60, apart=100 * MILLISECOND)]
    held = replace(moved[7], to_host=50 * MILLISECOND, **WORKER)
    moved[7] = held
    # WHEN they are joined  THEN these are linked, too, and the time is on the way to the host
    found = joined(tmp_path, moved)
    (disk,) = found.disks
    assert (disk.links.unlinked == Unlinked.LINKED).all()
    within = found.agreement.fit.line.within
    assert abs(stages(found)[7][0] - held.to_host) <= within


@pytest.mark.parametrize("cgroup", [0, 1, 77])
def test_bios_of_workers_in_other_cgroups_are_no_guests(tmp_path: Path, cgroup: int) -> None:
    # GIVEN transfers in no known cgroup, the root's or another one than the worker's
    mine = 5 if cgroup == 77 else cgroup
    moved = [replace(one, cgroup=mine) for one in transfers(60)]
    moved[7] = replace(moved[7], cgroup=cgroup, **WORKER)
    # WHEN they are joined  THEN the worker's bio is not the process's
    (disk,) = joined(tmp_path, moved).disks
    unlinked = disk.links.unlinked[np.argsort(disk.requests.issue)]
    assert np.flatnonzero(unlinked != Unlinked.LINKED).tolist() == [7]
