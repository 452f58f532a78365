# SPDX-License-Identifier: Apache-2.0
"""What is printed of sites that were chosen by declaration."""
