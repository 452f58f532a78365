# SPDX-License-Identifier: Apache-2.0
"""Turns logs into timelines, archives and figures. Needs no root, kernel or BPF."""
