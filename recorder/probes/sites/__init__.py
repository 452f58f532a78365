# SPDX-License-Identifier: Apache-2.0
"""Programs on sites that were chosen by declaration (`pairs`, `follow`)."""
