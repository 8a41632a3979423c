"""charts/embertide/README.md: an introduction, and every value as values.yaml describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support.paths import ROOT

CHART = ROOT / "charts" / "embertide"

INTRODUCTION = """\
# Helm chart of Embertide

It installs the definition of EmbeddingJob (short name `ej`) and one operator, which computes and
publishes the embeddings that jobs ask for. Kubernetes 1.28 and Helm 3.14 or later are needed. This
page is generated from `values.yaml` by `python -m tools.pages`.

```
helm install embertide charts/embertide --namespace embertide --create-namespace
helm test embertide --namespace embertide      # a tiny job, from graph to embeddings
kubectl apply -f job.yaml
kubectl get ej -w
```

The operator and all workers satisfy the Pod Security Standard *restricted*, which the namespace may
enforce.

## Rights and namespaces

Without `watchNamespaces` the operator has a ClusterRole and serves all namespaces. With
`watchNamespaces: [shop, search]` it has a Role in each of these, which have to exist before. In its
own namespace it may write its Lease and one ConfigMap, and that is all. `rbac.aggregate` adds
EmbeddingJobs to what Kubernetes' roles `view`, `edit` and `admin` allow in a namespace.

Several releases can stand side by side: each with its own namespaces to watch, or with a
separate `operator.class`, which jobs name in `spec.operatorClass`. Names of cluster-scoped objects
begin with the release's namespace. The definition is one for the whole cluster, so one release has
`crds.install: true` and the others `false`; `docs/install.md` describes releases whose
namespaces overlap.

## The definition: install, upgrade, uninstall

Helm installs what lies in a chart's folder `crds/` and never changes it again. So here the
definition is a template: `helm upgrade` brings its new fields. It is generated from the code that
reads manifests (`embertide crd`), and `helm.sh/resource-policy: keep` lets it, and with it every
EmbeddingJob, stay when the release is uninstalled. The operator sets no finalizers, so whatever
stays can be deleted at any time:

```
helm uninstall embertide --namespace embertide
kubectl delete crd embeddingjobs.embertide.dev     # deletes all EmbeddingJobs and their pods
kubectl delete crd embeddingschedules.embertide.dev
```

A release that finds a definition of another owner is refused (`invalid ownership metadata`). Set
`crds.install: false`, or let it take over with `helm upgrade --install --take-ownership` (Helm 3.17
or later), which is right for a definition that was applied by `kubectl`.

## In an umbrella chart

```yaml
# Chart.yaml
dependencies:
  - {name: embertide, version: 0.1.0, repository: oci://registry.example/charts,
     condition: embertide.enabled, tags: [ml]}
```

`condition`, `tags` and `global` are accepted; the chart itself does not read their values. A `null`
takes a default away, also that of a single amount (`resources: {limits: {memory: null}}`). Values
that templates need, such as numbers and switches, may not be null: helm then reports a
`missing property`. `helm lint --with-subcharts` checks subcharts against the values of the
umbrella, which no chart with a schema passes; lint without it.

## OpenShift

```yaml
podSecurityContext: {runAsUser: null, runAsGroup: null}
worker: {runAsUser: null}
```

leaves all user ids to the cluster.

## Monitoring

`serviceMonitor`, `podMonitor` and `prometheusRule` need the definitions of prometheus-operator;
`dashboards` makes ConfigMaps for Grafana's sidecar. Operator and workers serve `/metrics` on port
8080.

## GitOps

The conditions `Ready` and `Stalled` of an EmbeddingJob follow the convention that Flux, kpt and
Helm 4 read (kstatus). For Argo CD, `files/argocd-health.lua` says when a job is healthy: put it
into the ConfigMap `argocd-cm` under `resource.customizations.health.embertide.dev_EmbeddingJob`.

A job is one run, and its fields are fixed once they have no effect: what it reads and writes when
it is accepted, nearly all else when it has finished (`docs/kubernetes.md`). The API server refuses
a changed manifest of such a job, and a tool shows a failed sync instead of a green job that never
ran this way. Give each run a new name, or let a schedule make the jobs.
"""


@dataclass(frozen=True)
class Value:
    """A value of the chart: its path, description and default."""

    path: str
    text: str
    default: Any


def values() -> Iterator[Value]:
    """Every value that has a comment, in the order of values.yaml.

    A mapping whose keys have comments is a section: its default is None.
    """
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from _walk(root, text.splitlines(), "", yaml.safe_load(text))


def _walk(node: yaml.MappingNode, lines: list[str], path: str, at: Any) -> Iterator[Value]:
    for key, value in node.value:
        comment = _comment(lines, key.start_mark.line, key.start_mark.column)
        name, default = f"{path}{key.value}", at[key.value]
        inner: list[Value] = []
        if isinstance(value, yaml.MappingNode):
            inner = list(_walk(value, lines, f"{name}.", default))
        if comment:
            yield Value(name, comment, None if inner else default)
        yield from inner


def _comment(lines: list[str], line: int, column: int) -> str:
    """The comment right above a key, as one line."""
    begin = f"{' ' * column}# "
    first = line
    while first > 0 and lines[first - 1].startswith(begin):
        first -= 1
    return " ".join(text[len(begin) :] for text in lines[first:line])


def page() -> str:
    """The whole page."""
    rows = ["## Values", "", "| value | default | meaning |", "|---|---|---|"]
    for value in values():
        default = "" if value.default is None else f"`{_short(value.default)}`"
        cells = (f"`{value.path}`", default, value.text)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([INTRODUCTION, *rows]) + "\n"


def _short(default: Any) -> str:
    return json.dumps(default, ensure_ascii=False)
