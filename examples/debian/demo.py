"""The demonstration behind ``make demo``: run the job, then look at what it found.

Everything it does is a command of Embertide, shown before it runs, so that it can be typed
again with another manifest.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

JOB = Path(__file__).resolve().parent / "job.yaml"
PACKAGES = ["gcc", "nginx", "systemd", "firefox-esr", "python3-pandas", "plasma-desktop"]

BEFORE = """\
Debian's packages: 30,000 nodes, 223,390 dependencies used in both directions, 64 features each,
made of words of the description, section and tags. A two-layer GraphSAGE, trained with DGL to
predict dependencies, gives every package an embedding. Four workers compute them: the graph is
cut in two, the features are cut in two.
"""
BETWEEN = """\
The nearest packages: on the left by embedding, on the right by the raw features, which know a
package's one-line description and nothing of what it works with.
"""
AFTER = """\
The embeddings: {output}
  LATEST names the current version; versions/<version>/ holds its parquet parts (id, embedding).

Try next:
  {embertide} neighbors {job} YOUR-PACKAGE --features
  {embertide} run {job} --force --grid 4x1  # any grid gives the same embeddings
  {embertide} plan {job}                   # files, memory and bytes exchanged, before a run
  {embertide} versions {job}               # what is published; rollback goes back
  README.md says how to run your own graph and model.
"""


def shown(path: Path) -> str:
    """Return the path as one would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def run(*command: str) -> None:
    """Show a command and run it; leave with its exit code if it fails."""
    print(f"$ {shlex.join(command)}", flush=True)
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)
    print(flush=True)


def main() -> None:
    """Run the job on its 2x2 grid, print neighbours, say what to try next."""
    embertide, job = shown(Path(sys.executable).parent / "embertide"), shown(JOB)
    print(BEFORE, flush=True)
    run(embertide, "run", job)
    print(BETWEEN, flush=True)
    run(embertide, "neighbors", job, *PACKAGES, "-k", "6", "--features")
    print(AFTER.format(output=shown(JOB.parent / "output"), embertide=embertide, job=job), end="")


if __name__ == "__main__":
    main()
