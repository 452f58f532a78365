# SPDX-License-Identifier: Apache-2.0
"""The block layer's stable tracepoints, as other tools record them, as events."""
