"""``python -m embertide``."""

from embertide.cli import main

main()
