# SPDX-License-Identifier: Apache-2.0
"""Short event sequences, and the lifecycles that they become."""
