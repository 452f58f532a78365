# SPDX-License-Identifier: Apache-2.0
"""Wall clocks, and several logs on one timeline."""
