# SPDX-License-Identifier: Apache-2.0
"""Put slices on tracks and write their packets."""
