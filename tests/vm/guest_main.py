# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: performs the cases named by the arguments, or all of them."""

import sys
from importlib import import_module

from tests.vm.guest_case import perform

MODULES = (
    *("smoke", "records", "light", "metrics", "devices", "stacked", "stack", "faults", "cgroups"),
    *("files", "path", "waits", "blame", "uring", "drivers", "order", "pairs", "follow"),
    *("blktrace", "lttng", "inputs", "host", "bcc"),
)
CASES = {
    case.__name__: case
    for name in MODULES
    for case in import_module(f"tests.vm.guest_{name}").CASES
}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        perform(name, CASES[name])
