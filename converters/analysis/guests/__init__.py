# SPDX-License-Identifier: Apache-2.0
"""Requests of a guest on its virtual disks, and the bios of the host that served them."""
