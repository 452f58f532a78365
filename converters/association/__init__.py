# SPDX-License-Identifier: Apache-2.0
"""Which request served which bio."""
