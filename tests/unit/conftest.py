"""What unit tests share."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from manifest_support import EXAMPLE


@pytest.fixture
def example() -> dict[str, Any]:
    """The manifest of the design, to be changed."""
    return yaml.safe_load(EXAMPLE)
