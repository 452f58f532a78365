# SPDX-License-Identifier: Apache-2.0
"""What a recording takes of memory is reckoned before, and made to fit."""

import pytest

from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.probes.kernel.libbpf import MapType, map_bytes
from biotrail.recorder.probes.maps.fitting import Demand, ensure_room, least_bytes
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.errors import ProbeError

MIB = 1 << 20


def fitted(room: int | None, table: int = 0, others: int = 0) -> tuple[int, int]:
    """Bytes of a ring of level 0, and of the table, of 2 CPUs with rings of 64 MiB, in `room`."""
    demand = Demand(RingSizes.choose(2, 64 * MIB), 2, table, others)
    found = demand.fitting(None if room is None else Room(room, "are left"), MIB, 20 * MIB)
    return found.sizes.ring_bytes, found.table


@pytest.mark.parametrize(
    ("room", "size"),
    [
        (None, 64 * MIB),
        (2 * 80 * MIB + 33 * MIB, 64 * MIB),
        (2 * 80 * MIB + 31 * MIB, 32 * MIB),
        (33 * MIB, 256 << 10),
        (21 * MIB, 64 << 10),
    ],
)
def test_rings_leave_room_for_the_recorder(room: int | None, size: int) -> None:
    # GIVEN two CPUs with rings of 64 MiB, 80 MiB each with those above
    # WHEN there is that much memory THEN they are halved until 32 MiB of it are left, if they can
    assert fitted(room) == (size, 0)


@pytest.mark.parametrize(
    ("room", "rings", "table"),
    [
        (300 * MIB, 64 * MIB, 16 * MIB),
        (100 * MIB, 16 * MIB, 16 * MIB),
        (60 * MIB, 2 * MIB, 8 * MIB),
        (45 * MIB, 512 << 10, MIB),
        (34 * MIB, 64 << 10, MIB),
    ],
)
def test_the_larger_of_rings_and_table_gives_way(room: int, rings: int, table: int) -> None:
    # GIVEN a table of 16 MiB and other maps of 10 beside the rings
    # WHEN memory is limited THEN the larger is halved, until the least of both
    assert fitted(room, 16 * MIB, 10 * MIB) == (rings, table)


@pytest.mark.parametrize("room", [20 * MIB, 0, -5])
def test_what_does_not_fit_is_one_message(room: int) -> None:
    # GIVEN room for less than the recorder itself WHEN it is held against that THEN it is said
    with pytest.raises(ProbeError, match=r"needs 21 MiB more with the smallest .* MiB are left: "):
        fitted(room)


def test_other_maps_count() -> None:
    # GIVEN maps WHEN they leave the recorder enough, or there is no limit THEN nothing is said
    ensure_room(10 * MIB, Room(30 * MIB, ""), least_bytes(filters=False))
    ensure_room(10 * MIB, None, least_bytes(filters=True))
    # AND filters take more
    with pytest.raises(ProbeError, match="needs 38 MiB more"):
        ensure_room(10 * MIB, Room(30 * MIB, ""), least_bytes(filters=True))


@pytest.mark.parametrize(
    ("kind", "key", "value", "entries", "size"),
    [
        (MapType.ARRAY, 4, 64, 1 << 18, 16 * MIB),
        (MapType.ARRAY, 4, 3, 512, 4096),
        (MapType.HASH, 8, 8, 1 << 16, 5 * MIB + 4096),
        (MapType.PERCPU_ARRAY, 4, 4096, 2, 20480),
        (MapType.STACK_TRACE, 4, 1016, 16384, 16384 * (1032 + 8)),
        (MapType.RINGBUF, 0, 0, MIB, MIB + 3 * 4096),
    ],
)
def test_maps_have_the_sizes_that_the_kernel_gives_them(
    kind: MapType, key: int, value: int, entries: int, size: int
) -> None:
    # GIVEN maps WHEN their bytes are reckoned, for two CPUs THEN they are those of the kernel
    assert map_bytes(kind, key, value, entries, 2) == size
