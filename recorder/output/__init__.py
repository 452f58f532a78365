# SPDX-License-Identifier: Apache-2.0
"""Where chunks go: one log, numbered logs, or the newest in memory; the writer thread."""
