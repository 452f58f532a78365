# SPDX-License-Identifier: Apache-2.0
"""A guest's requests on its host: links, clocks and stages against transfers that are known."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.guests.disk_requests import (
    READ,
    Extents,
    HostBios,
    in_image,
    read_mapping,
)
from biotrail.converters.analysis.guests.figures import figures
from biotrail.converters.analysis.guests.guest import Guest, Unlinked, join
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
    path: Path, moved: list[Transfer], clock: Clock = CLOCK, mapping: Sequence[Extents] = ()
) -> Guest:
    guest, host = write(path, moved, clock)
    return join(Trace(guest), Trace(host), HOST_NAME, mapping)


def stages(found: Guest) -> list[list[int]]:
    """In the order of the transfers."""
    (disk,) = found.disks
    return disk.links.stages[np.argsort(disk.requests.issue)].tolist()


@pytest.mark.parametrize(
    "clock",
    [Clock(), CLOCK, Clock(behind=900 * SECOND, fast=-400e-6), Clock(behind=-1, fast=300e-6)],
)
def test_requests_and_stages_are_those_of_the_truth(tmp_path: Path, clock: Clock) -> None:
    # GIVEN logs of 400 transfers, of a guest whose clock is off and drifts
    moved = transfers(400)
    # WHEN they are joined / THEN each request has its own bio, for certain
    found = joined(tmp_path, moved, clock)
    (disk,) = found.disks
    assert (disk.links.unlinked == Unlinked.LINKED).all()
    assert (disk.links.certainty == Certainty.EXACT).all()
    edges = disk.links.edges
    assert (disk.requests.sector[edges.request] == disk.served.sector[edges.bio]).all()
    # AND the stages are the truth's, as far as the clocks' bound
    line = found.fit.line
    assert 0 < line.within < 30 * MICROSECOND
    for one, (to_host, queue, device, from_host) in zip(moved, stages(found), strict=True):
        assert abs(to_host - one.to_host) <= line.within
        assert (queue, device) == (2000, one.on_host - 2000)
        assert abs(from_host - one.from_host) <= line.within
    assert found.fit.kept.all()


def test_drift_is_measured(tmp_path: Path) -> None:
    # GIVEN a guest whose clock is fast by 100 ppm, for 20 s
    moved = transfers(1000, apart=20 * MILLISECOND)
    # WHEN the logs are joined / THEN the host's is slow by as much, within the bound over that time
    line = joined(tmp_path, moved, Clock(5 * SECOND, 100e-6)).fit.line
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
    # WHEN the logs are joined / THEN both are linked to it, each with its sectors
    (disk,) = joined(tmp_path, moved).disks
    rows = np.flatnonzero(disk.requests.sector >= 1 << 21)
    edges = disk.links.edges.take(np.isin(disk.links.edges.request, rows))
    assert len(rows) == 2
    assert len(set(edges.bio.tolist())) == 1
    assert edges.sectors.tolist() == [8, 8]
    assert (disk.links.certainty[rows] == Certainty.EXACT).all()


def test_what_the_host_does_not_show_is_named(tmp_path: Path) -> None:
    # GIVEN every fourth request without I/O on the host
    moved = [replace(one, pieces=() if at % 4 == 2 else None)
             for at, one in enumerate(transfers(100))]  # fmt: skip
    # WHEN the logs are joined / THEN these alone are unlinked, with that reason
    found = joined(tmp_path, moved)
    (disk,) = found.disks
    unlinked = disk.links.unlinked == Unlinked.NO_HOST_IO
    assert int(unlinked.sum()) == 25
    assert (disk.links.unlinked[~unlinked] == Unlinked.LINKED).all()
    assert list(figures(found).unlinked.values()) == [25]
    # GIVEN three requests after the end of the host's recording
    late = [replace(one, at=one.at + SECOND, pieces=()) for one in transfers(3, seed=9)]
    # WHEN the logs are joined / THEN these are said to be outside of it
    (disk,) = joined(tmp_path, [*transfers(50), *late]).disks
    assert (disk.links.unlinked[disk.requests.issue.argsort()][-3:] == Unlinked.OUTSIDE).all()
    # GIVEN a request half of which the host reads
    moved = transfers(50)
    moved[7] = replace(moved[7], pieces=((moved[7].sector, 4),))
    # WHEN the logs are joined / THEN its link is incomplete, and the others are exact
    (disk,) = joined(tmp_path, moved).disks
    odd = disk.links.certainty != Certainty.EXACT
    assert disk.links.certainty[odd].tolist() == [Certainty.INCOMPLETE]


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
    (disk,) = join(Trace(guest), Trace(host), HOST_NAME).disks
    unlinked = disk.links.unlinked
    assert unlinked[unlinked != Unlinked.LINKED].tolist() == [Unlinked.HOST_LOST]


def test_requests_of_the_same_place_are_told_apart_or_ambiguous(tmp_path: Path) -> None:
    # GIVEN two reads of one sector at the same time
    moved = transfers(50)
    slow = Transfer(70 * MILLISECOND, 1 << 21, on_host=MILLISECOND)
    moved += [slow, replace(slow, at=slow.at + 1000, on_host=slow.on_host - 3000)]
    # WHEN the logs are joined / THEN which bio is whose is said to be open
    (disk,) = joined(tmp_path, moved).disks
    rows = disk.requests.sector == 1 << 21
    assert (disk.links.certainty[rows] == Certainty.AMBIGUOUS).any()
    assert (disk.links.certainty[~rows] == Certainty.EXACT).all()
    # GIVEN 300 requests for 5 places, as a journal's
    moved = [replace(one, sector=8 * (at % 5)) for at, one in enumerate(transfers(300))]
    # WHEN the logs are joined / THEN each request has a bio of its own
    found = joined(tmp_path, moved, Clock(2 * SECOND, 20e-6))
    (disk,) = found.disks
    assert (disk.links.unlinked == Unlinked.LINKED).all()
    assert len(set(disk.links.edges.bio.tolist())) == 300
    # GIVEN a flush between other requests
    moved = [*transfers(50), Transfer(80 * MILLISECOND, 0, 0, "FF")]
    # WHEN the logs are joined / THEN it has the host's flush
    found = joined(tmp_path, moved)
    (row,) = [row for row in figures(found).rows if row.operation == "flush"]
    assert (row.requests, row.linked, row.bios) == (1, 1, 1)


def test_an_image_in_a_file_is_found_by_its_extents(tmp_path: Path) -> None:
    # GIVEN an image of which the first half is at 1,000,000 on the device, the second at 4096
    half = 1 << 19
    there = lambda at: at + 1_000_000 if at < half else at - half + 4096  # noqa: E731
    moved = [replace(one, pieces=((there(one.sector), 8),)) for one in transfers(200)]
    extents = Extents.of([(0, 1_000_000, half), (half, 4096, half)])
    # WHEN the logs are joined by these extents / THEN all is linked, at the image's own sectors
    found = joined(tmp_path, moved, mapping=[extents])
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
    (disk,) = join(Trace(guest), Trace(host), str(HOST_PID)).disks
    assert (disk.links.certainty == Certainty.EXACT).all()
    # AND a name that both have is refused
    with pytest.raises(ConversionError, match=f"give one of {HOST_PID}, {HOST_PID + 1}"):
        join(Trace(guest), Trace(host), "same")


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    # GIVEN a guest's log, and a host's with other I/O
    guest, _ = write(tmp_path, transfers(100, seed=1))
    (tmp_path / "other").mkdir()
    _, host = write(tmp_path / "other", transfers(100, seed=2))
    # WHEN they are joined  THEN it is said that no disk was found, and what to do
    with pytest.raises(ConversionError, match=r"no disk of the guest .*docs/guests\.md"):
        join(Trace(guest), Trace(host), HOST_NAME)
    with pytest.raises(ConversionError, match="no such process"):
        join(Trace(guest), Trace(host), "bhyve")


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
    within = found.fit.line.within
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


# Maps of an image: what qemu-img and filefrag print, and bios moved by them.

QCOW2 = """[{ "start": 0, "length": 1048576, "depth": 0, "present": false, "zero": true, "data": false},
{ "start": 1048576, "length": 131072, "depth": 0, "present": true, "zero": false, "data": true, "offset": 327680},
{ "start": 1179648, "length": 15597568, "depth": 0, "present": false, "zero": true, "data": false}]
"""  # noqa: E501 - as qemu-img 7.2 prints it
FILE = """Filesystem type is: ef53
File size of disk.img is 1048576 (256 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..      63:      34816..     34879:     64:
   1:       64..     255:      10240..     10431:    192:      34880: last,eof
disk.img: 2 extents found
"""


def bios(*places: tuple[int, int]) -> HostBios:
    """Bios at these (sector, sectors) of the device, numbered from 0."""
    table = np.array(places, dtype=np.int64).reshape(-1, 2)
    number = np.arange(len(table))
    zero = np.zeros(len(table), dtype=np.int64)
    dev = zero.astype(np.uint32)
    return HostBios(
        number,
        dev,
        dev,
        zero,
        dev.astype(np.uint64),
        zero + READ,
        *table.T,
        zero,
        zero,
        zero,
        zero > 0,
    )


def moved(paths: tuple[Path, ...], *places: tuple[int, int]) -> list[tuple[int, int, int]]:
    """(number of the bio, sector and sectors in the virtual disk) of each piece."""
    found = in_image(bios(*places), read_mapping(tuple(map(str, paths))))
    return sorted(
        zip(found.number.tolist(), found.sector.tolist(), found.sectors.tolist(), strict=True)
    )


@pytest.fixture
def qcow2(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_text(QCOW2)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "extents.txt"
    path.write_text(FILE)
    return path


def test_filefrags_extents_move_sectors_to_the_files(file: Path) -> None:
    # GIVEN a file of two extents, out of order on the device
    # WHEN bios in each, over the end of one, and elsewhere are moved
    found = moved((file,), (34816 * 8, 8), (10240 * 8 + 16, 8), (34879 * 8, 16), (0, 8), (5, 0))
    # THEN each piece is at its place in the file, what is not the file's is left out, and a bio
    # without sectors stays
    assert found == [(0, 0, 8), (1, 64 * 8 + 16, 8), (2, 63 * 8, 8), (4, 5, 0)]


def test_qcow2s_clusters_move_sectors_to_the_virtual_disk(qcow2: Path) -> None:
    # GIVEN an image of qcow2 on a device, with one allocated range
    # WHEN bios in it and in its metadata are moved  THEN the first alone is the disk's
    assert moved((qcow2,), (640, 16), (100, 8)) == [(0, 2048, 16)]


def test_both_maps_together_lead_from_the_device_to_the_virtual_disk(
    qcow2: Path, file: Path
) -> None:
    # GIVEN an image of qcow2 in a file: its sector 640 is in the file's second extent
    where = 10240 * 8 + 640 - 64 * 8
    # WHEN a bio there is moved by both maps, in any order  THEN it is the virtual disk's
    for paths in ((qcow2, file), (file, qcow2)):
        assert moved(paths, (where, 8)) == [(0, 2048, 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing of the kind", "is no map of an image"),
        ("[1, 2]", "is no map of an image"),
        ('[{"start": 0}', "is no map of an image"),
        ('[{"start": 0, "length": 5, "offset": "x", "data": true}]', "is no map of an image"),
        (FILE.replace("last,eof", "last,unknown_loc,delalloc"), "sync, and make the map again"),
        (QCOW2.replace('"zero": false', '"zero": false, "compressed": true'), "compressed"),
    ],
)
def test_files_that_are_no_maps_are_refused(tmp_path: Path, text: str, message: str) -> None:
    # GIVEN a file with something else  WHEN it is read  THEN the message says what is wanted
    path = tmp_path / "map"
    path.write_text(text)
    with pytest.raises(ConversionError, match=message):
        read_mapping((str(path),))


def test_one_map_of_a_kind_is_enough(tmp_path: Path, file: Path) -> None:
    # GIVEN two maps of one kind, or none that can be read  WHEN read  THEN it is refused
    with pytest.raises(ConversionError, match="at most"):
        read_mapping((str(file), str(file)))
    with pytest.raises(ConversionError, match="cannot be read"):
        read_mapping((str(tmp_path / "none"),))
