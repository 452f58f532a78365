# SPDX-License-Identifier: Apache-2.0
"""Tables of bios, requests and stages, with their certainty; the account of every event."""
