# SPDX-License-Identifier: Apache-2.0
"""Names for the numbers of a log, known and unknown."""

import numpy as np
import pytest

from biotrail.converters.events.context import Context, dev_numbers
from tests.support import captures

VDA, LOOP1, PART = 254 << 20, 7 << 20 | 1, 259 << 20


@pytest.fixture
def context() -> Context:
    return Context(captures.header())


@pytest.mark.parametrize(
    ("dev", "name", "label"),
    [
        (VDA, "vda", "vda (254:0)"),
        (PART, "loop1p1", "loop1p1 (259:0)"),
        (8 << 20 | 16, "8:16", "8:16"),
        (0, "unknown device", "unknown device"),
    ],
)
def test_devices(context: Context, dev: int, name: str, label: str) -> None:
    # GIVEN a device that the header lists, or not / WHEN named / THEN unknown ones say so
    assert (context.device_name(dev), context.device_label(dev)) == (name, label)


def test_a_mapped_device_has_the_mappers_name() -> None:
    # GIVEN a dm device / WHEN named / THEN by its mapper name, not dm-0
    entry = {"dev": 252 << 20, "name": "dm-0", "kind": "dm", "dm_name": "vg-home"}
    assert Context({"devices": [entry]}).device_label(252 << 20) == "vg-home (252:0)"


def test_devices_that_appear_while_recording(context: Context) -> None:
    # GIVEN a device that is not in the header / WHEN a note tells of it / THEN it has a name
    assert context.device_name(8 << 20) == "8:0"
    context.add_devices([{"dev": 8 << 20, "name": "sda", "kind": "disk"}])
    assert context.device_name(8 << 20) == "sda"


def test_partitions_and_stacking() -> None:
    # GIVEN a loop on a partition and an md on two disks
    devices = [
        {"dev": 1, "name": "p", "kind": "partition", "disk": 2},
        {"dev": 2, "name": "d", "kind": "disk"},
        {"dev": 3, "name": "loop0", "kind": "loop", "loop": {"backing_dev": 1}},
        {"dev": 4, "name": "md0", "kind": "md", "stacked_on": [2, 5]},
    ]
    context = Context({"devices": devices})
    # WHEN asked what is below / THEN the header's facts, and nothing for what it has not
    assert (context.disk_of(1), context.disk_of(2), context.disk_of(9)) == (2, 2, 9)
    assert context.is_partition_of(1, 2)
    assert not context.is_partition_of(2, 2)
    assert not context.is_partition_of(9, 2)
    assert (context.lower_devices(3), context.lower_devices(4)) == ([1], [2, 5])
    assert context.lower_devices(9) == []


@pytest.mark.parametrize(
    ("rwbs", "op", "flags"),
    [
        ("R", "read", ""),
        ("FWFSM", "write", "SYNC|META|FUA|PREFLUSH"),
        ("DS", "discard", "SYNC"),
        ("N", "drv_in", ""),
        ("RA", "read", "RAHEAD"),
    ],
)
def test_operations_and_flags(context: Context, rwbs: str, op: str, flags: str) -> None:
    # GIVEN a bio's flags / WHEN decoded / THEN by the recording kernel's names
    opf = captures.opf_of(rwbs)
    assert (context.op_name(opf), context.flag_names(opf)) == (op, flags)


def test_unknown_operations_flags_and_statuses_say_their_numbers(context: Context) -> None:
    # GIVEN numbers that the log's kernel has no name for
    opf = 42 | 1 << 31 | 1 << 11
    # WHEN decoded / THEN none is dropped
    assert context.op_name(opf) == "op 42"
    assert context.flag_names(opf) == "SYNC|0x80000000"
    assert context.status_name(200) == "status 200"
    assert context.status_name(-5) == "errno 5"
    assert (context.status_name(0), context.status_name(10)) == ("OK", "IOERR")


def test_the_recording_kernels_numbers_win() -> None:
    # GIVEN a kernel that numbers operations and flags otherwise
    kernel = {"op_enum": {"WRITE_ZEROES": 3, "READ": 0}, "flag_bits": {"FUA": 8}}
    context = Context({"kernel": kernel})
    # WHEN decoded / THEN by its numbers, and what it does not have has none
    assert context.op_name(3 | 1 << 8) == "write_zeroes"
    assert context.flag_names(3 | 1 << 8) == "FUA"
    assert (context.op_number("flush"), context.flag_mask("PREFLUSH")) == (-1, 0)


def test_operations_of_a_column(context: Context) -> None:
    # GIVEN a column of opf / WHEN coded / THEN each row's name, each name once
    opf = np.array([0, 1 | 1 << 11, 0, 77], dtype=np.uint32)
    codes, names = context.op_codes(opf)
    assert [names[c] for c in codes] == ["read", "write", "read", "op 77"]
    assert len(names) == 3


def test_a_header_without_anything() -> None:
    # GIVEN an empty header / WHEN asked / THEN there are names, of 6.18's numbers
    context = Context({})
    assert context.op_name(1) == "write"
    assert context.flag_names(1 << 17) == "FUA"
    assert (context.host, context.log_id, context.clocks) == ("unknown host", "0" * 32, [])
    assert dev_numbers(LOOP1) == "7:1"
