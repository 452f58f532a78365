# SPDX-License-Identifier: Apache-2.0
"""The layout of every record, the generator of `bpf/records.h`, kernel names, errors."""
