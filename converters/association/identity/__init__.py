# SPDX-License-Identifier: Apache-2.0
"""Association by kernel pointers: generations of addresses, exact joins."""
