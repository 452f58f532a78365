# SPDX-License-Identifier: Apache-2.0
"""Whose I/O made whose I/O wait: victims and culprits, and what would be without them."""
