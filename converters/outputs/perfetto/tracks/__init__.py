# SPDX-License-Identifier: Apache-2.0
"""The tree of tracks, and the lanes of overlapping slices."""
