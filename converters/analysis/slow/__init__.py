# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os, and the other I/O of their devices at that time."""
