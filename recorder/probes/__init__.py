# SPDX-License-Identifier: Apache-2.0
"""Loading and attaching BPF programs, their rings and maps, and what the kernel offers."""
