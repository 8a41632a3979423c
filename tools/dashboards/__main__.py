"""``python -m tools.dashboards``: see command.py."""

import sys

from tools.dashboards.command import main

sys.exit(main(sys.argv[1:]))
