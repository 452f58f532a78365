# SPDX-License-Identifier: Apache-2.0
"""LTTng's kernel traces as events."""
