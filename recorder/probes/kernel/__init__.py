# SPDX-License-Identifier: Apache-2.0
"""What the kernel is asked and told: BPF calls, BTF, tracefs, statistics of runs."""
