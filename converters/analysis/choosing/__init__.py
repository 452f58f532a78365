# SPDX-License-Identifier: Apache-2.0
"""Which I/Os are meant: by device, operation, process, time, outcome."""
