"""``python -m tests.support.monitoring dashboards``: write the chart's dashboards anew."""

import sys

from tests.support.monitoring.boards.writing import write

if sys.argv[1:] != ["dashboards"]:
    sys.exit(__doc__)
write()
