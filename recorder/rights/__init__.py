# SPDX-License-Identifier: Apache-2.0
"""Capabilities and scheduling priority of the recorder."""
