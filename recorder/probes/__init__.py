# SPDX-License-Identifier: Apache-2.0
"""BPF programs in the kernel: loading, rings, maps, and what the kernel offers."""
