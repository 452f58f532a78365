# SPDX-License-Identifier: Apache-2.0
"""The fuzzers read captures as other tests do, and stand beside them."""
