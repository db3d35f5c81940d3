"""Lets tests import what draws and builds the documentation, as its scripts do."""

from __future__ import annotations

import sys
from pathlib import Path

# At the end: `site` there must not stand before Python's own.
sys.path.append(str(Path(__file__).parents[2] / "tools"))
