"""The manifest that tests start from."""

from __future__ import annotations

import copy
from typing import Any

EXAMPLE = """\
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: products}
spec:
  input:
    edges:
      - {uri: s3://shop/edges/dt=2026-11-20/, format: parquet, columns: {source: src, destination: dst}}
    nodes:
      - {ids: string, features: {uri: s3://shop/features/, format: parquet, idColumn: id, vectorColumn: x}}
  model: {uri: s3://shop/models/gcn-7/}          # model.yaml + weights (safetensors, or a state_dict loaded weights_only)
  inference: {fanout: full, seed: 0}             # or fanout: [50, 50, 50]
  output: {uri: s3://shop/embeddings/products, format: parquet, dtype: float32, keepVersions: 7}
  workers: {grid: auto, device: cuda}            # or grid: {graph: 4, feature: 2}
  storage: {}
  suspend: false
  backoffLimit: 3
  activeDeadlineSeconds: 21600
  progressDeadlineSeconds: 900
  ttlSecondsAfterFinished: 604800
"""  # noqa: E501


def put(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of ``data`` with the value at a dotted path; numbers index lists."""
    data = copy.deepcopy(data)
    here: Any = data
    *parents, last = path.split(".")
    for part in parents:
        here = here[int(part)] if part.isdigit() else here.setdefault(part, {})
    here[int(last) if last.isdigit() else last] = value
    return data
