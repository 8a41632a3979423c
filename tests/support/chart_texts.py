"""What helm makes of the chart's values, as data: why it refuses them.

A case of ``tests/expected/chart/refused.txt`` is values, one YAML document a line, and its text is
what helm says of each, sorted. ``schedule`` is a schedule with other values at some paths, and
``again`` a second one.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.support import chart
from tests.support.manifests import put

SCHEDULE: dict[str, Any] = yaml.safe_load("""\
name: products
namespace: shop
schedule: 0 3 * * *
timeZone: Europe/Berlin
jobTemplate:
  spec:
    input:
      edges:
      - uri: s3://shop/edges/dt={date-1d}/
        format: parquet
        columns: {source: src, destination: dst}
      nodes:
      - ids: int64
        features: {uri: 's3://shop/features/', format: parquet, idColumn: id, vectorColumn: x}
    model: {uri: s3://shop/models/gcn-7/}
    output: {uri: s3://shop/embeddings/products}
    storage: {credentialsSecret: s3}
""")
"""The schedule of examples/schedule.yaml, as a value of the chart."""


def refusals(text: str) -> str:
    """What helm says of each line's values."""
    return "".join(f"{line}\n{_why(yaml.safe_load(line))}" for line in text.splitlines())


def _why(values: dict[str, Any]) -> str:
    values = dict(values)
    schedules = [_schedule(values.pop(key)) for key in ("schedule", "again") if key in values]
    made = chart.template(values | ({"schedules": schedules} if schedules else {}))
    if made.returncode == 0:
        return "  taken\n"
    lines = [line.strip() for line in made.stderr.splitlines()]
    whole = " ".join(line for line in lines if line and "JSON Schema" not in line)
    whole = re.sub(r"^.*?execution error at \(\S+\): |^.*?embertide: ", "", whole)
    # The library gives the place of a wrong name at random.
    whole = re.sub(r"at '[^']*': (?=invalid propertyName)", "at a place: ", whole)
    whole = whole.removesuffix(" Use --debug flag to render out invalid YAML")
    return "".join(f"  {part.strip()}\n" for part in sorted(re.split(r" (?=- at )", whole)))


def _schedule(fields: dict[str, Any]) -> dict[str, Any]:
    """The schedule with other values at these paths, or without those that are null."""
    found = SCHEDULE
    for path, value in fields.items():
        found = put(found, path, value)
        if value is None:
            del found[path]
    return found
