# SPDX-License-Identifier: Apache-2.0
"""Records block-layer events to a log. Knows nothing of converters."""
