"""``python tests/cluster``: see command.py."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from cluster.command import main  # noqa: E402  # found by the line above

if __name__ == "__main__":
    sys.exit(main())
