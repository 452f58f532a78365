# SPDX-License-Identifier: Apache-2.0
"""The fuzzers read captures as other tests do, and stand beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
