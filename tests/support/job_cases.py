"""Jobs for the custom resource definition: what it takes, what it refuses and what it says.

They are the files ``tests/expected/jobs_*.txt``: a case gives its changes to ``BASE``, a path a
line, and where the API server refuses it part of what that says: as ``rule`` the message of a rule
of ours, as ``API server`` that server's own about a type or bound. Cases with neither are refused
by the manifest alone. The unit tests hold all against pydantic, the cluster tests against a real
API server, so that both sides are known to agree.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.expected import inputs

Job = dict[str, Any]

BASE: Job = yaml.safe_load("""\
apiVersion: embertide.dev/v1alpha1
kind: EmbeddingJob
metadata: {name: products}
spec:
  input:
    edges:
      - {uri: s3://shop/edges/dt=2026-11-20/, format: parquet, columns: {source: a, destination: b}}
    nodes:
      - {ids: string, features: {uri: s3://shop/features/, idColumn: id, vectorColumn: x}}
  model: {uri: s3://shop/models/gcn-7/}
  output: {uri: s3://shop/embeddings/products}
""")
"""A small job that is taken; the cases below change it."""

_ABSENT = object()


class _Loader(yaml.SafeLoader):
    """Also reads ``!absent`` (takes the field away), ``!list [3, f{}]`` (f0, f1 and f2) and
    ``!padded [9, name]`` (nine characters, the last one repeated)."""


def _listed(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    count, item = loader.construct_sequence(node, deep=True)
    return [item.format(i) if isinstance(item, str) else item for i in range(count)]


def _padded(loader: _Loader, node: yaml.SequenceNode) -> str:
    count, text = loader.construct_sequence(node)
    return str(text).ljust(count, text[-1])


_Loader.add_constructor("!absent", lambda _loader, _node: _ABSENT)
_Loader.add_constructor("!list", _listed)
_Loader.add_constructor("!padded", _padded)


@dataclass(frozen=True)
class Case:
    """A job like another one but for some fields.

    Attributes:
        changes: paths as messages have them, such as ``spec.input.edges[0].uri``, with new values.
        rule: part of the message of the rule that refuses it; "" without one.
        message: part of what the API server says; "" where it takes the job.
    """

    name: str
    changes: dict[str, Any]
    rule: str
    message: str

    @classmethod
    def parse(cls, name: str, text: str) -> Case:
        fields = _Loader(text).get_single_data() or {}
        rule = fields.pop("rule", "")
        return cls(name, message=fields.pop("API server", rule), rule=rule, changes=fields)

    def mutate(self, job: Job) -> Job:
        """The job with the changes; the one given stays as it is."""
        job = copy.deepcopy(job)
        for path, value in self.changes.items():
            *parents, last = [int(n) if n.isdigit() else n for n in re.findall(r"[^.[\]]+", path)]
            here: Any = job
            for part in parents:
                here = here[part] if isinstance(part, int) else here.setdefault(part, {})
            if value is _ABSENT:
                del here[last]
            else:
                here[last] = copy.deepcopy(value)
        return job


def _cases(file: str) -> list[Case]:
    return [Case.parse(name, text) for name, text in inputs(file).items()]


TAKEN = _cases("jobs_taken.txt")
"""What both sides take, and read alike."""

REFUSED = _cases("jobs_refused.txt")
"""What the manifest refuses; with a message also the API server."""

CASES = [*TAKEN, *(case for case in REFUSED if case.message)]
"""All that can be tried on a new job; those that are taken have no message."""

_CHANGED = _cases("jobs_changed.txt")
ACCEPTED = [case for case in _CHANGED if case.name.startswith("accepted: ")]
"""Changes once the job is accepted."""

FINISHED = [case for case in _CHANGED if case.name.startswith("finished: ")]
"""Changes to a suspended job that has finished: what would have no effect is refused."""

RULES = [case for case in (*REFUSED, *_CHANGED) if case.rule]
"""Every rule's cases."""
