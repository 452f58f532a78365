# SPDX-License-Identifier: Apache-2.0
"""Two recordings compared, with confidence intervals."""
