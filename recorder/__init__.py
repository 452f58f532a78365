# SPDX-License-Identifier: Apache-2.0
"""Records block I/O: from the kernel to the log."""
