# SPDX-License-Identifier: Apache-2.0
"""Places in the kernel chosen by declaration: its types (BTF), expressions, ready-made pairs."""
