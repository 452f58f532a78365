# SPDX-License-Identifier: Apache-2.0
"""The schema of every record, the generator of `bpf/records.h`, kernel names, and errors."""
