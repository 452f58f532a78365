# SPDX-License-Identifier: Apache-2.0
"""What recording cost, how many events there were, and how many were lost."""
