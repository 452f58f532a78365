# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: performs the cases named by the arguments, or all of them."""

import sys

from tests.vm import (
    guest_bcc,
    guest_blame,
    guest_blktrace,
    guest_cgroups,
    guest_devices,
    guest_drivers,
    guest_faults,
    guest_files,
    guest_follow,
    guest_host,
    guest_inputs,
    guest_light,
    guest_lttng,
    guest_metrics,
    guest_order,
    guest_pairs,
    guest_path,
    guest_records,
    guest_smoke,
    guest_stack,
    guest_stacked,
    guest_uring,
    guest_waits,
)
from tests.vm.guest_case import perform

CASES = {
    case.__name__: case
    for module in (
        guest_smoke,
        guest_records,
        guest_light,
        guest_metrics,
        guest_devices,
        guest_stacked,
        guest_stack,
        guest_faults,
        guest_cgroups,
        guest_files,
        guest_path,
        guest_waits,
        guest_blame,
        guest_uring,
        guest_drivers,
        guest_order,
        guest_pairs,
        guest_follow,
        guest_blktrace,
        guest_lttng,
        guest_inputs,
        guest_host,
        guest_bcc,
    )
    for case in module.CASES
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        perform(name, CASES[name])
