# SPDX-License-Identifier: Apache-2.0
"""Events as time-sorted columns, and what the log says beside them."""
