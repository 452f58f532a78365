# SPDX-License-Identifier: Apache-2.0
"""Turns logs into timelines, archives and answers. Needs no root, kernel or BPF."""
