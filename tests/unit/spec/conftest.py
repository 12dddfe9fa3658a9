"""Lets the tests of this folder import spec_data and the table's generator beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
