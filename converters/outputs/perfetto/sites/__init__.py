# SPDX-License-Identifier: Apache-2.0
"""What was recorded at chosen sites: pairs of events, lives of followed objects."""
