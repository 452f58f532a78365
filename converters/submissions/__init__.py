# SPDX-License-Identifier: Apache-2.0
"""Requests of io_uring and iocbs of aio, joined from their bios, completions and calls."""
