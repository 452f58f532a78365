# SPDX-License-Identifier: Apache-2.0
"""Figures of system calls: by name and group, their waits, and requests of io_uring and aio."""
