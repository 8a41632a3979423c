"""The demonstration behind ``make demo-hetero``: three node types in one job, and what it found.

Everything it does is a command of Embertide, shown before it runs, so that it can be typed
again with another manifest.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from debian.demo import run, shown

JOB = Path(__file__).resolve().parent / "job.yaml"
PACKAGES = ["nginx", "python3-pandas", "plasma-desktop"]
MAINTAINERS = ["gnome", "java"]

BEFORE = """\
Debian again, with its kinds apart: 30,000 packages, 1,657 maintainers and 53 sections, five edge
lists read both ways. A module of PyTorch Geometric (HeteroConv of SAGEConv), exported as it is,
gives each of the three types embeddings, in one run on two workers.
"""
BETWEEN = """\
The nearest packages, on the left by embedding, on the right by the raw features; then the nearest
maintainers, of whom the features know no more than how many packages they have.
"""
AFTER = """\
The embeddings: {output}
  LATEST names the current version; versions/<version>/<type>/ holds its parts of each type.

Try next:
  {embertide} show {folder}/model    # the exported model, relation by relation
  {embertide} neighbors {job} YOUR-PACKAGE --node-type package
  {embertide} plan {job}    # memory and bytes exchanged, by relation
"""


def main() -> None:
    """Run the job on its 2x1 grid, print neighbours of two types, say what to try next."""
    embertide, job = shown(Path(sys.executable).parent / "embertide"), shown(JOB)
    print(BEFORE, flush=True)
    run(embertide, "run", job)
    print(BETWEEN, flush=True)
    run(embertide, "neighbors", job, *PACKAGES, "--node-type", "package", "-k", "6", "--features")
    run(embertide, "neighbors", job, *MAINTAINERS, "--node-type", "maintainer", "-k", "6")
    print(
        AFTER.format(
            output=shown(JOB.parent / "output"),
            embertide=embertide,
            job=job,
            folder=shown(JOB.parent),
        ),
        end="",
    )


if __name__ == "__main__":
    main()
