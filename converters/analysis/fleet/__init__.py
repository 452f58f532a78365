# SPDX-License-Identifier: Apache-2.0
"""Reports of any number of recordings: parts that add up, and what differs between hosts."""
