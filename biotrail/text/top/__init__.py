# SPDX-License-Identifier: Apache-2.0
"""What `biotrail top` shows."""
