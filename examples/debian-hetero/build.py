"""Make the snapshot this example ships: who maintains Debian's packages, and in which section.

Packages, their features and what they ask for are those of the example beside it, split by kind.
Maintainers and sections come from the package lists that every Debian machine keeps for apt; the
same lists give the same bytes.

    python examples/debian-hetero/build.py [--lists /var/lib/apt/lists]
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
PACKAGES = HERE.parent / "debian"
sys.path.insert(0, str(HERE.parent))

from debian.build import package_lists, read_packages, write  # noqa: E402 - not installed

KINDS = {
    "depends": ("Depends", "Pre-Depends"),
    "recommends": ("Recommends",),
    "suggests": ("Suggests", "Enhances"),
}
"""The edge type of each kind of relation between packages."""

ADDRESS = re.compile(r"<([^<>@\s]+)@([^<>@\s]+)>")
TEAMS = re.compile(r"(^|\.)(lists|tracker|packages|teams)\.|^lists-|^alioth-lists")
"""Hosts whose addresses are those of teams."""

PERSON = "person-"
LARGEST = 16.0
"""No log2 of a number of packages is above it, so that features are up to 1."""


def maintainer_of(field: str) -> str:
    """Return the team of a Maintainer field by its address; a person by a number.

    Names and addresses of persons are everywhere in Debian; an example needs none of them.
    """
    match = ADDRESS.search(field)
    if match is None:
        return "nobody"
    local, host = match[1].lower(), match[2].lower()
    if TEAMS.search(host):
        return re.sub(r"^(pkg|team)[-+]|[-+](maintainers|maint|devel|team)$", "", local)
    return f"{PERSON}{hashlib.sha256(f'{local}@{host}'.encode()).hexdigest()[:8]}"


def write_edges(pairs: Iterable[tuple[str, str]], name: str, out: Path) -> None:
    """Write an edge type's list, sorted."""
    pairs = sorted(set(pairs))
    table = pa.table(
        {"source": [one for one, _ in pairs], "destination": [two for _, two in pairs]}
    )
    write(table, out / name / f"{name}.parquet", [])


def write_nodes(
    names: list[str], name: str, out: Path, more: Mapping[str, float] | None = None
) -> None:
    """Write ids and features: the number of packages, on a log scale, and ``more`` if given."""
    sizes = Counter(names)
    rows = [
        [*([] if more is None else [more[one]]), math.log2(size) / LARGEST]
        for one, size in sorted(sizes.items())
    ]
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.array(rows, np.float32).ravel()), len(rows[0])
    )
    write(pa.table({"id": sorted(sizes), "x": vectors}), out / name / f"{name}.parquet", [])


def main() -> None:
    """Write an edge list for each kind of relation, and features of maintainers and sections."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=Path, default=Path("/var/lib/apt/lists"))
    parser.add_argument("--out", type=Path, default=HERE / "data")
    options = parser.parse_args()

    names = pq.read_table(PACKAGES / "data" / "features")["id"].to_pylist()
    known = read_packages(package_lists(options.lists))
    missing = [name for name in names if name not in known]
    if missing:
        print(f"{len(missing)} packages are in the lists no more, such as {missing[0]}")
    edges = pq.read_table(PACKAGES / "data" / "edges").to_pylist()
    for name, kinds in KINDS.items():
        ends = ((one["source"], one["destination"]) for one in edges if one["kind"] in kinds)
        write_edges(ends, name, options.out)
    present = [name for name in names if name in known]
    maintainers = [maintainer_of(known[name]["Maintainer"]) for name in present]
    sections = [known[name]["Section"].rpartition("/")[2] for name in present]
    write_edges(zip(present, maintainers, strict=True), "maintained_by", options.out)
    write_edges(zip(present, sections, strict=True), "in_section", options.out)
    team = {name: float(not name.startswith(PERSON)) for name in maintainers}
    write_nodes(maintainers, "maintainers", options.out, team)
    write_nodes(sections, "sections", options.out)


if __name__ == "__main__":
    main()
