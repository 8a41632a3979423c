"""``python -m tests.support.monitoring``: see command.py."""

import sys

from tests.support.monitoring.command import main

sys.exit(main(sys.argv[1:]))
