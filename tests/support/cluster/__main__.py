"""``python -m tests.support.cluster``: see command.py."""

import sys

from tests.support.cluster.requirements import packages

if __name__ == "__main__":
    if sys.argv[1:] == ["packages"]:
        # Asked for before anything is installed that the rest needs.
        print(" ".join(packages()))
        sys.exit()
    from tests.support.cluster.command import main

    sys.exit(main())
