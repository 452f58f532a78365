# SPDX-License-Identifier: Apache-2.0
"""Names of functions: ELF files, kallsyms, and the mappings of programs."""
