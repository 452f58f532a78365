# SPDX-License-Identifier: Apache-2.0
"""Wall clocks of logs, and the alignment of several logs on one timeline."""
