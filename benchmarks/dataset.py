"""Make the files that the end-to-end benchmark reads: a graph, features in no order, models.

    .venv/bin/python -m benchmarks.dataset FOLDER --scale 16

RMAT with the paper's probabilities {0.57, 0.19, 0.19, 0.05} and 20 edges a node (Deal, section
4.1), labels permuted. Self-loops are left out, so that "a self-loop at every node" is the same
graph for every system. Edges are parquet, features npy and, where a case reads them, parquet;
models are GCN, GAT and APPNP with DGL's names of parameters. The same options give the same files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

HEADS, LAYERS = 4, 3
HOPS, TELEPORT = 10, 0.1
QUADRANTS = (0.57, 0.19, 0.19)
_DRAWN = 1 << 22


def make(folder: Path, *, scale: int, degree: int = 20, width: int = 128, files: int = 16) -> Path:
    """Write the data set, unless it is there already; returns ``folder``."""
    described = folder / "dataset.json"
    options = {"scale": scale, "degree": degree, "width": width, "files": files}
    if described.exists() and json.loads(described.read_text())["options"] == options:
        return folder
    nodes = 1 << scale
    source, destination = rmat(scale, degree << scale)
    write_edges(folder / "edges", source, destination, files)
    write_features(folder / "features", nodes, width, files)
    for conv in ("gcn", "gat", "appnp"):
        write_model(folder / "models" / conv, conv, width)
    sizes = {"nodes": nodes, "edges": len(source), "width": width}
    described.write_text(json.dumps({"options": options, **sizes}))
    return folder


def rmat(
    scale: int, edges: int, seed: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """About ``edges`` sources and destinations: those drawn less the self-loops among them."""
    generator = np.random.default_rng(seed)
    names = generator.permutation(1 << scale)
    parts = []
    for at in range(0, edges, _DRAWN):
        source, destination = draw_rmat(generator, scale, min(_DRAWN, edges - at))
        other = source != destination
        parts.append((names[source[other]], names[destination[other]]))
    sources, destinations = zip(*parts, strict=True)
    return np.concatenate(sources), np.concatenate(destinations)


def draw_rmat(
    generator: np.random.Generator, scale: int, count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sources and destinations of so many edges among 2^scale nodes, [count] each."""
    a, b, c = QUADRANTS
    source, destination = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(scale):
        place = generator.random(count, dtype=np.float32)
        source = source << 1 | (place >= a + b)
        destination = destination << 1 | (((place >= a) & (place < a + b)) | (place >= a + b + c))
    return source, destination


def write_edges(
    folder: Path, source: npt.NDArray[np.int64], destination: npt.NDArray[np.int64], files: int
) -> None:
    """Parquet files of the columns src and dst."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = zip(np.array_split(source, files), np.array_split(destination, files), strict=True)
    for number, (src, dst) in enumerate(ends):
        found = pa.table({"src": src, "dst": dst})
        pq.write_table(found, folder / f"part-{number:02}.parquet", compression="zstd")


def write_features(folder: Path, nodes: int, width: int, files: int) -> None:
    """Rows in no order, as npy: ``ids`` beside ``x``."""
    generator = np.random.default_rng(1)
    for name in ("ids", "x"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, ids in enumerate(np.array_split(generator.permutation(nodes), files)):
        x = generator.standard_normal((len(ids), width), dtype=np.float32)
        np.save(folder / "ids" / f"part-{number:02}.npy", ids)
        np.save(folder / "x" / f"part-{number:02}.npy", x)


def write_parquet_features(folder: Path) -> None:
    """The same rows as parquet, unless they are there."""
    if (folder / "parquet").exists():
        return
    begun = folder / "parquet.begun"
    begun.mkdir(exist_ok=True)
    for ids in sorted((folder / "ids").iterdir()):
        x = np.load(folder / "x" / ids.name)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), x.shape[1])
        pq.write_table(
            pa.table({"id": np.load(ids), "x": vectors}),
            begun / f"{ids.stem}.parquet",
            compression="none",
            use_dictionary=False,
        )
    begun.rename(folder / "parquet")


def write_model(folder: Path, conv: str, width: int, layers: int = LAYERS) -> None:
    """DGL's parameters, all of equal width, uniform as Glorot has them."""
    from safetensors.numpy import save_file

    generator = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    weights: dict[str, npt.NDArray[np.float32]] = {}

    def draw(name: str, shape: tuple[int, ...], bound: float) -> None:
        weights[name] = generator.uniform(-bound, bound, shape).astype(np.float32)

    if conv == "appnp":
        draw("lin.weight", (width, width), (6 / (2 * width)) ** 0.5)
        draw("lin.bias", (width,), 0.1)
    for layer in range(layers if conv != "appnp" else 0):
        glorot, head = (6 / (2 * width)) ** 0.5, width // HEADS
        if conv == "gcn":
            draw(f"layers.{layer}.weight", (width, width), glorot)
        else:
            draw(f"layers.{layer}.fc.weight", (width, width), glorot)
            for end in ("attn_l", "attn_r"):
                draw(f"layers.{layer}.{end}", (1, HEADS, head), (6 / (head + HEADS)) ** 0.5)
        draw(f"layers.{layer}.bias", (width,), 0.1)
    save_file(weights, folder / "weights.safetensors")
    (folder / "model.yaml").write_text(yaml.safe_dump(_description(conv, layers)))


def _description(conv: str, count: int) -> dict[str, Any]:
    if conv == "appnp":
        linear = {"conv": "linear", "prefix": "lin"}
        return {
            "library": "dgl",
            "layers": [linear, {"conv": "appnp", "k": HOPS, "alpha": TELEPORT}],
        }
    layers: list[dict[str, Any]] = [{"conv": conv} for _ in range(count)]
    for layer in layers[:-1]:
        layer["activation"] = "relu"
    return {"library": "dgl", "layers": layers}


def make_from_arguments(title: str | None, make: Callable[..., Path]) -> None:
    """Make the files that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=title, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=int, default=16, help="2^scale nodes")
    parser.add_argument("--degree", type=int, default=20, help="edges drawn per node")
    parser.add_argument("--width", type=int, default=128, help="columns of the features")
    options = parser.parse_args()
    make(options.folder, scale=options.scale, degree=options.degree, width=options.width)


def main() -> None:
    """Make the files."""
    make_from_arguments(__doc__, make)


if __name__ == "__main__":
    main()
