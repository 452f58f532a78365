# SPDX-License-Identifier: Apache-2.0
"""One recording from start to stop, with its header, its END frame and its summary."""
