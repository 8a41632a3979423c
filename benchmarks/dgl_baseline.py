"""The same job as one straightforward DGL script: read, build, full-graph forward, write.

What a careful user would write without Embertide: one process, all cores, DGL's own modules,
columnar reading, no training-time overhead. Prints its stage seconds as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import safetensors.torch
import torch
import yaml

from embertide.models.dgl_interop import load_dgl


def build_model(folder: Path, dgl: Any) -> list[Any]:
    """DGL's modules with the job's weights, in order."""
    described = yaml.safe_load((folder / "model.yaml").read_text())["layers"]
    weights = safetensors.torch.load_file(folder / "weights.safetensors")
    layers = []
    for number, entry in enumerate(described):
        own = {
            key.removeprefix(f"layers.{number}."): value
            for key, value in weights.items()
            if key.startswith(f"layers.{number}.")
        }
        layers.append((_layer(entry["conv"], own, dgl), entry))
    return layers


def _layer(conv: str, own: dict[str, torch.Tensor], dgl: Any) -> Any:
    if conv == "gcn":
        rows, columns = own["weight"].shape
        module = dgl.nn.GraphConv(rows, columns, allow_zero_in_degree=True)
    else:
        heads, width = own["attn_l"].shape[1:]
        module = dgl.nn.GATConv(own["fc.weight"].shape[1], width, heads, allow_zero_in_degree=True)
    module.load_state_dict(own)
    return module.eval()


def main() -> None:
    """Run the job and print the seconds of each stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="made by `embertide synth`")
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dgl = load_dgl()
    begin = psutil.Process().create_time()
    seconds = {"imports": time.time() - begin}

    def lap(name: str) -> None:
        seconds[name] = time.time() - begin - sum(seconds.values())

    edges = ds.dataset(options.folder / "edges").to_table(columns=["src", "dst"])
    source, destination = (torch.from_numpy(edges[n].to_numpy()) for n in ("src", "dst"))
    features = ds.dataset(options.folder / "features").to_table(columns=["id", "x"])
    vectors = features["x"].combine_chunks()
    x = torch.from_numpy(vectors.flatten().to_numpy().reshape(len(features), -1).copy())
    ids = torch.from_numpy(features["id"].to_numpy().copy())
    lap("read")
    if not torch.equal(ids, torch.arange(len(ids))):
        x = x[torch.argsort(ids)]
    graph = dgl.graph((source, destination), num_nodes=len(x))
    graph.create_formats_()
    lap("build")
    with torch.inference_mode():
        for module, entry in build_model(options.folder / "model", dgl):
            x = module(graph, x)
            x = x.flatten(1)
            kind = entry.get("activation")
            if kind:
                x = getattr(torch.nn.functional, kind)(x)
    lap("forward")
    flat = pa.array(x.numpy().reshape(-1))
    table = pa.table(
        {
            "id": np.arange(len(x)),
            "embedding": pa.FixedSizeListArray.from_arrays(flat, x.shape[1]),
        }
    )
    options.out.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, options.out / "embeddings.parquet", compression="none", use_dictionary=False
    )
    lap("write")
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
