#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the virtual machine: perform the cases that the arguments name, or all of guest_main.py.
dmesg --console-off # injected errors would fill the console
exec .venv/bin/python -m tests.vm.guest_main "$@"
