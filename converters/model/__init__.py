# SPDX-License-Identifier: Apache-2.0
"""Log to events to associations to lifecycles, in columns."""
