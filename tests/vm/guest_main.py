# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: performs the cases named by the arguments, or all of them."""

import sys

import guest_bcc
import guest_blktrace
import guest_cgroups
import guest_devices
import guest_faults
import guest_files
import guest_smoke
import guest_stack
import guest_stacked
from guest_case import perform

CASES = {
    case.__name__: case
    for module in (
        guest_smoke,
        guest_devices,
        guest_stacked,
        guest_stack,
        guest_faults,
        guest_cgroups,
        guest_files,
        guest_blktrace,
        guest_bcc,
    )
    for case in module.CASES
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        perform(name, CASES[name])
