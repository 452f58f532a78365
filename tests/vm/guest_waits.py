# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: waits of known reasons, on ext4 on a slow disk."""

import sys
from pathlib import Path

from tests.vm.guest_case import SECTORS, Case, disk, dm, module, run
from tests.vm.guest_cgroups import MOUNT, mounted

DELAY_MS = 30
"""For each I/O: so long that two readers meet at one page, in emulation too."""
LOADS = Path(__file__).resolve().parents[1] / "support" / "wait_loads.py"


def waits(case: Case) -> None:
    """Commits, pages read by two, direct reads and throttled writing; each by its own process."""
    module("dm-delay")
    below = disk("scsi1")
    load = [sys.executable, str(LOADS), str(MOUNT)]
    table = f"0 {SECTORS} delay /dev/{below} 0 {DELAY_MS}"
    with dm("slow", table) as name, mounted(name):
        case.record([name], load, more=["--path=all", "--call-budget=0"])
        doctor = run(".venv/bin/biotrail", "doctor", "--json")
    (case.directory / "doctor.json").write_text(doctor, encoding="utf-8")
    case.told["devices"] = [name, below]


CASES = (waits,)
