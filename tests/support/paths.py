"""Where this checkout is: for tests that read its files or run its modules in other processes."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
