# SPDX-License-Identifier: Apache-2.0
"""System calls: the parts of each call's time, and which calls belong to chosen bios."""
