"""Make the graph of the Debian archive: four releases, binary and source packages.

Fetches package lists with apt into a folder beside this file, from the mirror that this machine
uses, and leaves the machine's own lists as they are; root is not needed. Binary packages keep
their name as their id, source packages have ``src:`` before it. The same lists give the same
bytes.

    python examples/debian-archive/build.py [--suites sid,trixie,bookworm,bullseye]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from debian.build import (  # noqa: E402 - not installed
    BUCKETS,
    LEFT_OUT,
    WEIGHTS,
    Record,
    edges_of,
    lists_in,
    output_of,
    read_packages,
    reduce_width,
    short_mantissa,
    targets,
    tf_idf,
    words,
    write,
    write_vectors,
)

SUITES = "sid,trixie,bookworm,bullseye"
MIRROR = "http://deb.debian.org/debian"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMPONENTS = "main contrib non-free non-free-firmware"

BUILDS = {
    "Build-Depends": 1.0,
    "Build-Depends-Indep": 1.0,
    "Build-Depends-Arch": 1.0,
    "Binary": 1.0,
}
"""What an edge from a source package weighs: to what it is built with, to what it becomes."""

PART = re.compile(r"[a-z]+")
"""What a name is made of, without versions."""


def mirror_of_machine() -> str:
    """Return where apt gets Debian from on this machine."""
    format_ = ("--format", "$(REPO_URI)", "Created-By: Packages", "Component: main")
    uris = output_of(["apt-get", "indextargets", *format_]).split()
    return next((uri for uri in uris if uri.rstrip("/").endswith("/debian")), MIRROR).rstrip("/")


def fetch(folder: Path, mirror: str, suites: Sequence[str]) -> None:
    """Bring the lists of packages and sources of the suites into ``folder/lists``, with apt."""
    for name in ("lists/partial", "cache"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(
        "".join(
            f"{kind} [arch=amd64 signed-by={KEYRING}] {mirror} {suite} {COMPONENTS}\n"
            for suite in suites
            for kind in ("deb", "deb-src")
        )
    )
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "Acquire::Check-Valid-Until": "false",  # of a mirror that keeps what was
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "APT::Sandbox::User": "",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    output_of(["apt-get", "update", "-q", "--error-on=any", *options])


def read_archive(lists: Path, suites: Sequence[str]) -> dict[str, Record]:
    """Return id -> fields, those of relations of all suites, others of the first that has it."""
    both: list[dict[str, Record]] = []
    for kind, joined in (("Packages", (*WEIGHTS, "Provides")), ("Sources", tuple(BUILDS))):
        texts = chain.from_iterable(lists_in(lists, f"*_{one}_*_{kind}*") for one in suites)
        both.append(read_packages(texts, joined))
    packages, sources = both
    packages = {name: one for name, one in packages.items() if section_of(one) not in LEFT_OUT}
    for name, source in sources.items():
        made = [packages[one] for one, _ in targets(source["Binary"]) if one in packages]
        if made:
            source["Description"] = "; ".join(one.get("Description", "") for one in made)
            source["Section"] = made[0].get("Section", "none")
            packages[f"src:{name}"] = source
    return packages


def section_of(record: Record) -> str:
    """Return the section without the component before it."""
    return record.get("Section", "none").rpartition("/")[2]


def provided_by(packages: dict[str, Record]) -> dict[str, list[str]]:
    """Return virtual package -> the packages that provide it, sorted."""
    provided: dict[str, set[str]] = {}
    for name, record in packages.items():
        for virtual, _ in targets(record.get("Provides", "")):
            provided.setdefault(virtual, set()).add(name)
    return {virtual: sorted(names) for virtual, names in provided.items()}


def text_of(record: Record) -> Iterator[str]:
    """Yield the words of a package, and the parts of its name."""
    yield from words(record)
    yield from (f"name:{part}" for part in PART.findall(record["Package"]))


def digest(path: Path) -> str:
    """Return the first digits of a file's SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def main() -> None:
    """Fetch the lists, write data/edges and data/features."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--suites", default=SUITES, help="the first that has a package describes it"
    )
    parser.add_argument("--mirror", help="where Debian is; this machine's, if not given")
    parser.add_argument("--lists", type=Path, help="apt's lists, if they are there already")
    parser.add_argument("--width", type=int, default=64, help="columns of the features")
    parser.add_argument("--out", type=Path, default=HERE / "data")
    options = parser.parse_args()

    suites = options.suites.split(",")
    if options.lists is None:
        fetch(options.out / "apt", options.mirror or mirror_of_machine(), suites)
        options.lists = options.out / "apt" / "lists"
    packages = read_archive(options.lists, suites)
    edges = edges_of(packages, {**WEIGHTS, **BUILDS}, provided_by(packages))
    names = sorted({name for pair in edges for name in pair})
    ordered = sorted(edges.items())
    write(
        pa.table(
            {
                "source": [source for (source, _), _ in ordered],
                "destination": [destination for (_, destination), _ in ordered],
                "kind": [kind for _, (kind, _) in ordered],
            }
        ),
        options.out / "edges" / "edges.parquet",
        [],
    )
    bags = [Counter(zlib.crc32(w.encode()) % BUCKETS for w in text_of(packages[n])) for n in names]
    features = short_mantissa(reduce_width(tf_idf(bags), options.width))
    write_vectors(names, features, options.out / "features" / "features.parquet")
    files = ("edges/edges.parquet", "features/features.parquet")
    made = {
        "nodes": len(names),
        "sources": sum(name.startswith("src:") for name in names),
        "edges": Counter(kind for kind, _ in edges.values()),
        "sha256": {name: digest(options.out / name) for name in files},
    }
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
