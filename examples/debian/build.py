"""Make the snapshot this example ships: Debian's packages as a graph with text features.

The package lists every Debian machine keeps for apt are a real graph at hand: names are string
ids, the kinds of dependency are edge weights, and sections, tags and one-line descriptions give
each package features that know nothing of the graph. Run it on a Debian machine after
``apt-get update``; the same lists give the same bytes.

    python examples/debian/build.py [--packages 30000] [--lists /var/lib/apt/lists]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp

HERE = Path(__file__).resolve().parent

WEIGHTS = {
    "Depends": 1.0,
    "Pre-Depends": 1.0,
    "Recommends": 0.5,
    "Suggests": 0.25,
    "Enhances": 0.25,
}
"""What an edge of each kind weighs: needed, wanted, helpful."""

ALTERNATIVE = 0.5
"""In ``a | b | c`` everything after the first choice weighs this much of its kind's weight."""

LEFT_OUT = {"debug", "doc", "localization", "oldlibs", "tasks"}
"""Sections that mirror other packages and would be everybody's nearest neighbours."""

BUCKETS = 1 << 15
"""Words are hashed into this many columns before the SVD."""

STOP_WORD = re.compile(
    r"(an?|and|a[st]|be|by|for|from|in|into|i[st]|o[fnr]|that|the|this|to|with)$"
)
WORD = re.compile(r"[a-z][a-z0-9+#]*[a-z0-9+#]|[a-z]")
NAME = re.compile(r"^\s*([a-z0-9][a-z0-9+.-]*)")

Record = dict[str, str]
Edge = tuple[str, str]


def package_lists(folder: Path) -> Iterator[str]:
    """Yield the text of every package list: apt's files, or what ``apt-cache`` still knows."""
    texts = lists_in(folder, "*_Packages*")
    yield next(texts, "") or output_of(["apt-cache", "dumpavail"])
    yield from texts


def lists_in(folder: Path, pattern: str) -> Iterator[str]:
    """Yield the texts of apt's files whose names match, in the order of their names."""
    for path in sorted(p for p in folder.glob(pattern) if p.is_file()):
        if path.suffix == "":
            yield path.read_text(encoding="utf-8")
        else:
            yield output_of(["/usr/lib/apt/apt-helper", "cat-file", str(path)])


def output_of(command: list[str]) -> str:
    """Return what a command prints; end with its message if it fails or is not there."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not there: this script needs a Debian machine with apt")
    except subprocess.CalledProcessError as error:
        sys.exit(f"{' '.join(command)} failed: {error.stderr.strip()}")


def records(text: str) -> Iterator[Record]:
    """Yield one package's fields after the other; continued lines are joined by blanks."""
    for paragraph in text.split("\n\n"):
        fields: Record = {}
        key = ""
        for line in paragraph.splitlines():
            if line.startswith((" ", "\t")):
                fields[key] += " " + line.strip()
            else:
                key, _, value = line.partition(":")
                fields[key] = value.strip()
        if "Package" in fields:
            yield fields


def read_packages(lists: Iterable[str], joined: Sequence[str] = ()) -> dict[str, Record]:
    """Return name -> fields; a package in several lists is taken from the first.

    Args:
        joined: fields of relations that are those of all its lists.
    """
    packages: dict[str, Record] = {}
    for text in lists:
        for record in records(text):
            known = packages.setdefault(record["Package"], record)
            for field in joined if known is not record else ():
                if record.get(field, "") not in known.get(field, ""):
                    known[field] = f"{known.get(field, '')}, {record[field]}"
    if not packages:
        sys.exit("no package found in the lists: run 'apt-get update' first")
    return packages


def edges_of(
    packages: Mapping[str, Record],
    weights: Mapping[str, float] = WEIGHTS,
    provided: Mapping[str, Sequence[str]] | None = None,
) -> dict[Edge, tuple[str, float]]:
    """Return (package, what it asks for) -> (kind, weight), one edge for a pair of packages.

    Of several relations between two packages, either way round, the heaviest stays: the job
    makes the graph undirected, and a pair must not count twice there.

    Args:
        weights: kind of relation -> what an edge weighs.
        provided: virtual package -> what provides it; left out without.
    """
    edges: dict[Edge, tuple[str, float]] = {}
    for name in sorted(packages):
        for kind, weight in weights.items():
            asked = targets(packages[name].get(kind, ""))
            if provided is not None:
                asked = providers(asked, packages, provided)
            for target, factor in asked:
                if target == name or target not in packages:
                    continue
                pair = (target, name) if (target, name) in edges else (name, target)
                if pair not in edges or edges[pair][1] < weight * factor:
                    edges.pop(pair, None)
                    edges[name, target] = (kind, weight * factor)
    return edges


def targets(relation: str) -> Iterator[tuple[str, float]]:
    """Yield the package names of a relation field with the factor of their place in ``a | b``."""
    for clause in relation.split(","):
        for place, choice in enumerate(clause.split("|")):
            if match := NAME.match(choice):
                yield match[1], 1.0 if place == 0 else ALTERNATIVE


def providers(
    asked: Iterable[tuple[str, float]],
    packages: Mapping[str, Record],
    provided: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, float]]:
    """Yield what is asked for; in place of a virtual package those that provide it."""
    for target, factor in asked:
        if target in packages:
            yield target, factor
            continue
        choices = provided.get(target, ())
        for choice in choices:
            yield choice, factor * (1.0 if len(choices) == 1 else ALTERNATIVE)


def most_connected(
    packages: dict[str, Record], edges: dict[Edge, tuple[str, float]], count: int
) -> list[str]:
    """Return the names of the ``count`` packages with most edges, sorted by name."""
    degree = Counter(name for pair in edges for name in pair)
    ranked = sorted(packages, key=lambda name: (-degree[name], name))
    return sorted(ranked[:count])


def words(record: Record) -> Iterator[str]:
    """Yield a package's words: description and its word pairs, section, and tags whole."""
    text = [
        w for w in WORD.findall(record.get("Description", "").lower()) if not STOP_WORD.match(w)
    ]
    yield from text
    yield from (f"{a} {b}" for a, b in pairwise(text))
    yield f"section:{record.get('Section', 'none')}"
    yield from (f"tag:{tag.strip()}" for tag in record.get("Tag", "").split(",") if tag.strip())


def tf_idf(bags: list[Counter[int]]) -> sp.csr_matrix:
    """Return [packages, BUCKETS] rows of length one, log-damped counts times inverse frequency."""
    indptr = np.cumsum([0, *(len(bag) for bag in bags)])
    indices = np.fromiter((word for bag in bags for word in sorted(bag)), dtype=np.int64)
    counts = np.fromiter((bag[word] for bag in bags for word in sorted(bag)), dtype=np.float64)
    frequency = np.bincount(indices, minlength=BUCKETS)
    values = (1 + np.log(counts)) * np.log((1 + len(bags)) / (1 + frequency[indices]))
    matrix = sp.csr_matrix((values, indices, indptr), shape=(len(bags), BUCKETS))
    length = np.sqrt(matrix.multiply(matrix).sum(axis=1)).A1
    return sp.diags(1 / np.maximum(length, 1e-12)) @ matrix


def reduce_width(matrix: sp.csr_matrix, width: int) -> npt.NDArray[np.float32]:
    """Return the [rows, width] truncated SVD by subspace iteration from a fixed seed.

    Columns are flipped to a positive sum, so that the result does not hang on LAPACK's signs;
    rows have length one, so that the dot product is the cosine.
    """
    start = np.random.default_rng(0).standard_normal((matrix.shape[1], width + 16))
    basis = np.linalg.qr(matrix @ start)[0]
    for _ in range(6):
        basis = np.linalg.qr(matrix @ (matrix.T @ basis))[0]
    left, singular, _ = np.linalg.svd((matrix.T @ basis).T, full_matrices=False)
    dense = (basis @ left[:, :width]) * singular[:width]
    dense *= np.where(dense.sum(axis=0) < 0, -1.0, 1.0)
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    return dense.astype(np.float32)


def short_mantissa(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Round to 8 bits of mantissa: still plain float32, and half the size once compressed."""
    bits = values.view(np.uint32)
    return ((bits + np.uint32(1 << 14)) & np.uint32(0xFFFF8000)).view(np.float32)


def write(table: pa.Table, path: Path, split: list[str]) -> None:
    """Write one small parquet file; columns in ``split`` have their bytes stored by place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [name for name in table.column_names if name not in split]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in plain if name != "id"],
        use_byte_stream_split=split,
        row_group_size=1 << 13,
    )
    print(f"{path.name}: {table.num_rows} rows, {path.stat().st_size / 1e6:.2f} MB")


def write_vectors(names: list[str], rows: npt.NDArray[np.float32], path: Path) -> None:
    """Write a table of ids with their rows [N, D]."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    write(pa.table({"id": names, "x": vectors}), path, ["x.list.element"])


def main() -> None:
    """Read the lists, choose packages, write data/edges and data/features."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=Path, default=Path("/var/lib/apt/lists"))
    parser.add_argument("--packages", type=int, default=30000, help="the most connected N")
    parser.add_argument("--width", type=int, default=64, help="columns of the features")
    parser.add_argument("--out", type=Path, default=HERE / "data")
    options = parser.parse_args()

    everything = read_packages(package_lists(options.lists))
    packages = {n: r for n, r in everything.items() if r.get("Section") not in LEFT_OUT}
    edges = edges_of(packages)
    names = most_connected(packages, edges, options.packages)
    kept = set(names)
    edges = {pair: edge for pair, edge in sorted(edges.items()) if kept.issuperset(pair)}

    bags = [Counter(zlib.crc32(w.encode()) % BUCKETS for w in words(packages[n])) for n in names]
    features = short_mantissa(reduce_width(tf_idf(bags), options.width))
    write(
        pa.table(
            {
                "source": [source for source, _ in edges],
                "destination": [destination for _, destination in edges],
                "kind": [kind for kind, _ in edges.values()],
                "weight": pa.array([weight for _, weight in edges.values()], pa.float32()),
            }
        ),
        options.out / "edges" / "edges.parquet",
        [],
    )
    write_vectors(names, features, options.out / "features" / "features.parquet")
    kinds = Counter(kind for kind, _ in edges.values())
    print(json.dumps({"packages": len(names), "of": len(everything), "edges": kinds}, indent=1))


if __name__ == "__main__":
    main()
