# SPDX-License-Identifier: Apache-2.0
"""Rings of machines that reorder stores: every record is there or told as lost, small rings too."""

import json
from pathlib import Path

from biotrail.recorder.schema.records import Kind
from tests.support.devices import read_fio_report
from tests.vm.guest_order import IOS
from tests.vm.machine import Case, Log, Machine


def logs(case: Case) -> dict[str, Log]:
    """The case's recordings by way and size of rings."""
    return {name: Log(case.directory / f"{name}.biotrail") for name in case.told["recordings"]}


def ios(path: Path) -> int:
    """What fio did, by its own account."""
    (job,) = read_fio_report(path)["jobs"]
    return int(job["read"]["total_ios"] + job["write"]["total_ios"])


def test_small_rings_lose_nothing_silently(vm: Machine) -> None:
    # GIVEN loads that wrote faster than small rings were read  WHEN events are counted
    case = vm.case("small_rings", lossy=True)
    for name, log in logs(case).items():
        total, seen = ios(case.directory / f"{name}.json"), log.seen()
        # THEN with those that the log tells as lost all of fio's are there
        assert total == 2 * IOS, name
        for kind in (Kind.Q, Kind.D):
            found = sum(number for (letter, _), number in seen.items() if letter == kind.name)
            assert found + log.lost(kind) == total, (name, kind)


def test_exchanges_are_used_where_the_kernel_has_them(vm: Machine) -> None:
    # GIVEN the same recordings, with heads published in both ways where that is possible
    case = vm.case("small_rings", lossy=True)
    # WHEN what each lost is counted; how much depends on the machine, so the figures are printed
    for name, log in logs(case).items():
        print(
            f"{vm.kernel} {name}: {sum(log.seen().values())} of Q, D and R seen, {log.lost()} lost"
        )
    print(f"{vm.kernel}: a reader waits {case.told['waits_us']} us (medians)")
    # THEN all kernels but 5.10 have exchanges, and doctor says which order there is
    said = json.loads((case.directory / "doctor.json").read_text(encoding="utf-8"))
    (check,) = [check for check in said["checks"] if check["name"] == "order of rings"]
    assert case.told["exchanges"] == check["ok"] == (vm.branch != "5.10")
