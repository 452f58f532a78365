# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page."""
