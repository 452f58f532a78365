# SPDX-License-Identifier: Apache-2.0
"""What recording cost, and what was lost."""
