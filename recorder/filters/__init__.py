# SPDX-License-Identifier: Apache-2.0
"""Which I/O is recorded, and what triggers a dump."""
