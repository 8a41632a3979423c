"""``python tests/cluster``: see command.py."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from cluster.requirements import packages  # noqa: E402  # found by the line above

if __name__ == "__main__":
    if sys.argv[1:] == ["packages"]:
        # Asked for before anything is installed that the rest needs.
        print(" ".join(packages()))
        sys.exit()
    from cluster.command import main

    sys.exit(main())
