# SPDX-License-Identifier: Apache-2.0
"""Maps of an image: what qemu-img and filefrag print, and bios moved by them."""

from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.guests.disk_requests import READ, HostBios
from biotrail.converters.analysis.guests.image import read_mapping
from biotrail.recorder.schema.errors import ConversionError

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
    found = read_mapping(tuple(map(str, paths))).in_image(bios(*places))
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
