"""Make the files that the benchmark of typed graphs reads: three node types, six relations.

    .venv/bin/python -m benchmarks.typed_dataset FOLDER --scale 20

RMAT as in :mod:`benchmarks.dataset`, rectangular where a relation's ends differ in number. The
types have a half, a quarter and a quarter of 2^scale nodes, each relation a sixth of the edges.
Models have PyG's names of parameters: RGCN (means, a root weight) and HGT (four heads).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from benchmarks.dataset import (
    HEADS,
    LAYERS,
    QUADRANTS,
    make_from_arguments,
    write_edges,
    write_features,
)

SHARES = {"item": 1, "user": 2, "shop": 2}
"""Node type -> the power of two by which it has fewer nodes than 2^scale."""
RELATIONS = (
    ("item", "like", "item"),
    ("user", "buys", "item"),
    ("item", "bought_by", "user"),
    ("shop", "sells", "item"),
    ("user", "visits", "shop"),
    ("shop", "serves", "user"),
)
CONVS = ("rgcn", "hgt")
_DRAWN = 1 << 22

Values = npt.NDArray[np.float32]


def sizes_of(scale: int) -> dict[str, int]:
    """Node type -> its nodes."""
    return {name: 1 << (scale - less) for name, less in SHARES.items()}


def make(folder: Path, *, scale: int, degree: int = 20, width: int = 128, files: int = 4) -> Path:
    """Write the data set, unless it is there already; returns ``folder``."""
    described = folder / "dataset.json"
    options = {"scale": scale, "degree": degree, "width": width, "files": files}
    if described.exists() and json.loads(described.read_text())["options"] == options:
        return folder
    sizes, edges = sizes_of(scale), (degree << scale) // len(RELATIONS)
    for number, (source, name, destination) in enumerate(RELATIONS):
        ends = _draw(sizes[source], sizes[destination], edges, seed=number)
        write_edges(folder / "edges" / name, *ends, files)
    for name, nodes in sizes.items():
        write_features(folder / "features" / name, nodes, width, files)
    for conv in CONVS:
        _write_model(folder / "models" / conv, conv, width)
    about = {"nodes": sum(sizes.values()), "edges": edges * len(RELATIONS), "width": width}
    described.write_text(json.dumps({"options": options, **about}))
    return folder


def _draw(
    sources: int, destinations: int, edges: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sources and destinations; the end with fewer nodes takes no part in the last levels."""
    generator = np.random.default_rng(seed)
    names = [generator.permutation(count) for count in (sources, destinations)]
    bits = [count.bit_length() - 1 for count in (sources, destinations)]
    found: tuple[list[Any], list[Any]] = ([], [])
    a, b, c = QUADRANTS
    for at in range(0, edges, _DRAWN):
        count = min(_DRAWN, edges - at)
        ends = [np.zeros(count, np.int64), np.zeros(count, np.int64)]
        for level in range(max(bits)):
            place = generator.random(count, dtype=np.float32)
            lower = place >= a + b, ((place >= a) & (place < a + b)) | (place >= a + b + c)
            for end in (0, 1):
                if level < bits[end]:
                    ends[end] = ends[end] << 1 | lower[end]
        for end in (0, 1):
            found[end].append(names[end][ends[end]])
    return np.concatenate(found[0]), np.concatenate(found[1])


def _write_model(folder: Path, conv: str, width: int) -> None:
    """PyG's parameters of all layers, uniform as Glorot has them."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(2)

    def draw(*shape: int, bound: float) -> Values:
        return generator.uniform(-bound, bound, shape).astype(np.float32)

    weights: dict[str, Values] = {}
    for layer in range(LAYERS):
        made = _rgcn(draw, width) if conv == "rgcn" else _hgt(draw, width)
        weights |= {f"convs.{layer}.{name}": value for name, value in made.items()}
    save_file(weights, folder / "weights.safetensors")
    layers: list[dict[str, Any]] = [{"conv": conv} for _ in range(LAYERS)]
    for number, layer_of in enumerate(layers):
        layer_of |= {"activation": "relu"} if number < LAYERS - 1 else {}
    described = {
        "library": "pyg",
        "relations": [":".join(one) for one in RELATIONS],
        "layers": layers,
    }
    (folder / "model.yaml").write_text(yaml.safe_dump(described, sort_keys=False))


def _rgcn(draw: Any, width: int) -> dict[str, Values]:
    """A weight for each relation, the node's own, a bias."""
    glorot = (3 / width) ** 0.5
    return {
        "weight": draw(len(RELATIONS), width, width, bound=glorot / 2),
        "root": draw(width, width, bound=glorot / 2),
        "bias": draw(width, bound=0.1),
    }


def _hgt(draw: Any, width: int) -> dict[str, Values]:
    """Keys, queries and values of each type, matrices and priors of each relation."""
    head, glorot = width // HEADS, (3 / width) ** 0.5
    made = {
        f"{kind}_rel.weight": draw(HEADS * len(RELATIONS), head, head, bound=(3 / head) ** 0.5)
        for kind in ("k", "v")
    }
    for name in SHARES:
        made |= {
            f"kqv_lin.lins.{name}.weight": draw(3 * width, width, bound=glorot),
            f"kqv_lin.lins.{name}.bias": draw(3 * width, bound=0.1),
            f"out_lin.lins.{name}.weight": draw(width, width, bound=glorot),
            f"out_lin.lins.{name}.bias": draw(width, bound=0.1),
            f"skip.{name}": draw(1, bound=1.0),
        }
    return made | {f"p_rel.{'__'.join(one)}": draw(1, HEADS, bound=1.0) for one in RELATIONS}


def main() -> None:
    """Make the files."""
    make_from_arguments(__doc__, make)


if __name__ == "__main__":
    main()
