"""JSON schemas for kubeconform, strict: of Kubernetes, EmbeddingJob, and those of other projects.

They are made from the definitions themselves, so nothing is downloaded from a place of schemas.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from embertide.spec.crd import crd, schedule_crd
from tests.support.chart_sources import kubernetes, pod_groups, prometheus_operator

LOCATION = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"
"""Where kubeconform finds the schema of a kind, in the folder of :func:`write`."""
_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
_PREFIX = "#/definitions/"
_REFERENCE = re.compile(r'"#/definitions/([^"]+)"')
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_KINDS = "x-kubernetes-group-version-kind"


def write(folder: Path) -> None:
    """Write the schema of every kind, one file each."""
    given = json.loads(kubernetes().read_text())["definitions"]
    definitions = {name: strict(definition) for name, definition in given.items()}
    definitions[_QUANTITY] = {"type": ["string", "number"]}
    for name, definition in given.items():
        for kind in definition.get(_KINDS, ()):
            needed = {one: definitions[one] for one in _needed(name, definitions)}
            schema = {"$ref": f"{_PREFIX}{name}", "definitions": needed}
            _put(folder / _file(kind["group"], kind["version"], kind["kind"]), schema)
    foreign = [*prometheus_operator(), *pod_groups()]
    found = [yaml.safe_load(path.read_text()) for path in foreign]
    for definition in (*found, crd(), schedule_crd()):
        _write_definition(folder, definition)


def _needed(name: str, definitions: dict[str, Any]) -> set[str]:
    """A definition and all that it refers to, directly or not."""
    found, rest = {name}, [name]
    while rest:
        more = set(_REFERENCE.findall(json.dumps(definitions[rest.pop()]))) - found
        found |= more
        rest += more
    return found


def _write_definition(folder: Path, definition: dict[str, Any]) -> None:
    spec = definition["spec"]
    for version in spec["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        _put(folder / _file(spec["group"], version["name"], spec["names"]["kind"]), schema)


def strict(schema: Any) -> Any:
    """An OpenAPI schema as JSON schema in which an object has only the properties it names."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items() if key not in ("format", "default")}
    if "properties" in schema:
        # Names of properties may be words of JSON schema, such as format and default.
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    for bound in ("exclusiveMinimum", "exclusiveMaximum"):
        made.pop(bound, None)  # booleans in OpenAPI 3.0, which later drafts do not take
    return made


def _file(group: str, version: str, kind: str) -> str:
    return f"{group or version}_{version}_{kind.lower()}.json"


def _put(path: Path, schema: dict[str, Any]) -> None:
    path.write_text(json.dumps(_DRAFT | schema))
