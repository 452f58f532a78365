# SPDX-License-Identifier: Apache-2.0
"""Function names from ELF files, kallsyms, and the mappings of processes."""
