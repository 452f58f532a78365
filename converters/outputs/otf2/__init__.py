# SPDX-License-Identifier: Apache-2.0
"""Lifecycles as OTF2 archives."""
