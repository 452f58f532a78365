# SPDX-License-Identifier: Apache-2.0
"""The command `biotrail`."""

__version__ = "0.1.0"
