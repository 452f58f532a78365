# SPDX-License-Identifier: Apache-2.0
"""A delay that was put into one device shows in that device's stage, and nowhere else."""

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER, Bios
from tests.vm.machine import Case, Machine

MS = 1_000_000


def true_delay(case: Case, delay: int) -> int:
    """The delay that was set; more where the machine is so busy that fio, too, measured more."""
    return max(delay, int(case.job["read"]["clat_ns"]["percentile"]["50.000000"]))


def delayed(case: Case) -> Bios:
    """The lower bios of dm-delay, which kernels that tell no remap for it leave to its kworker."""
    linked, bios = case.log.below(case), case.log.bios
    if len(linked):
        return linked
    mine = (bios.dev == case.log.dev(case.lower[0])) & (bios.parent == NEVER)
    return bios.take(mine & np.array(["kworker" in comm for comm in case.log.comms]))


def test_dm_delay_of_200_ms(vm: Machine) -> None:
    # GIVEN the same reads through dm-linear and through dm-delay
    without, case = vm.case("dm_delay_none"), vm.case("dm_delay")
    log = case.log
    # WHEN the medians of their stages are compared
    top = log.medians(log.bios_of(case.top))
    # THEN the 200 ms are in the upper device
    assert top == {"bio-based": pytest.approx(true_delay(case, 200 * MS), rel=0.05)}
    # AND the disk below is as it was
    below, known = log.medians(delayed(case)), log.medians(log.below(without))
    assert below.keys() == known.keys() != set()
    assert all(abs(below[stage] - known[stage]) < 20 * MS for stage in below), (below, known)


def test_null_blk_completion_of_20_ms(vm: Machine) -> None:
    # GIVEN the same reads of a device that completes at once, and of one that takes 20 ms
    without, case = vm.case("null_blk_0_ms"), vm.case("null_blk_20_ms")
    log = case.log
    # WHEN the medians of their stages are compared
    known = log.medians(log.bios_of(without.top))
    found = log.medians(log.bios_of(case.top))
    # THEN the 20 ms are in the device, and the others are as they were
    assert found.pop("D2C") == pytest.approx(true_delay(case, 20 * MS), rel=0.1)
    known.pop("D2C")
    assert found.keys() == known.keys()
    assert all(abs(found[stage] - known[stage]) < 2 * MS for stage in found), (found, known)
