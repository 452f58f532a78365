# SPDX-License-Identifier: Apache-2.0
"""Which bios and requests a completion ends, and what the next window must see again."""
