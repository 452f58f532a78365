# SPDX-License-Identifier: Apache-2.0
"""The text that blkparse prints, as events."""
