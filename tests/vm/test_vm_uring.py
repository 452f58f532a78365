# SPDX-License-Identifier: Apache-2.0
"""io_uring and aio: every bio of fio's I/Os has its submission, every one its completion."""

import numpy as np
import pytest
from numpy.typing import NDArray

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.vm.guest_uring import AIO, INLINE, POLLED, WORKERS
from tests.vm.machine import Case, Machine

NAMELESS = {"5.10"}
"""Kernels whose io_uring_complete does not name the request."""
NO_DIO_COMPLETE = {"5.10", "6.1"}
"""Kernels that do not report when direct I/O of a file completes."""
KINDS = {
    "inline": (16 << 10, INLINE),
    "worker": (8 << 10, WORKERS),
    "sqpoll": (32 << 10, POLLED),
}


def records(case: Case, kind: Kind) -> NDArray[np.void]:
    trace = Trace(case.log.path)
    return np.concatenate([e.fields(kind, e.rows(kind)) for e, _ in trace.events()])


def test_a_kernel_whose_completions_name_no_request_says_so(vm: Machine) -> None:
    # GIVEN a recording of io_uring and aio WHEN its header is read
    facts = vm.case("uring", lossy=True).log.reader.header["path"]
    missing = {entry["part"]: entry["reason"] for entry in facts["missing"]}
    # THEN submissions are recorded, or named with the reason
    assert ("uring" in facts["parts"]) == (vm.branch not in NAMELESS)
    if vm.branch in NAMELESS:
        assert "io_uring_complete has 4 arguments" in missing["uring"]


def test_every_bio_has_its_submission_and_completion(vm: Machine) -> None:
    # GIVEN reads by io_uring's three ways to run a request, and by aio
    if vm.branch in NAMELESS:
        pytest.skip("this kernel's completions name no request")
    case = vm.case("uring")
    found, ends = records(case, Kind.SUBMISSION), records(case, Kind.RING_COMPLETE)
    aio = (found["flags"] & 8) != 0
    # WHEN submissions are counted by runner and length
    for runner, (length, count) in enumerate(KINDS.values()):
        mine = found[~aio & (found["runner"] == runner) & (found["length"] == length)]
        # THEN each of fio's I/Os has one bio, known by its iocb, and a completion of its length
        assert len(mine) == count
        assert (mine["joined"] == 0).all()
        # AND fio registers the file for the polling thread alone
        assert (mine["flags"] == (runner == 2)).all()
        keys = set(zip(mine["req"].tolist(), mine["submitted"].tolist(), strict=True))
        assert len(keys) == count
        results = [end["result"] for end in ends if (end["req"], end["submitted"]) in keys]
        assert results == [length] * count
    # AND so has each of aio, completed where the kernel reports that
    assert aio.sum() == AIO
    reported = 0 if vm.branch in NO_DIO_COMPLETE else AIO
    assert len(ends) == INLINE + WORKERS + POLLED + reported
