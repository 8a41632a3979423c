"""The schema of a job's spec in charts/embertide/values.schema.json.

So that helm refuses a schedule's template for the same fields, types and bounds as the API server
refuses a job.
"""

from __future__ import annotations

import json
import re
from typing import Any

from embertide.spec.crd import crd
from embertide.submit.template import MIN_TTL_SECONDS
from tests.support.paths import ROOT

FILE = ROOT / "charts" / "embertide" / "values.schema.json"
Schema = dict[str, Any]

_LINE = re.compile(r'^    "jobSpec": \{.*\},$', re.MULTILINE)
_KEPT = ("type", "enum", "required", "minimum", "maximum", "minLength", "maxLength", "pattern",
         "minItems", "maxItems")  # fmt: skip


def job_spec() -> Schema:
    """The schema of ``jobTemplate.spec``: the definition's, with a time to live for schedules."""
    (version,) = crd()["spec"]["versions"]
    found = _json_schema(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    found["properties"]["ttlSecondsAfterFinished"]["minimum"] = MIN_TTL_SECONDS
    return found


def page() -> str:
    """The whole file, with the schema on a line of its own."""
    line = f'    "jobSpec": {json.dumps(job_spec(), separators=(",", ":"))},'
    return _LINE.sub(lambda _match: line, FILE.read_text(encoding="utf-8"), count=1)


def _json_schema(schema: Schema) -> Schema:
    """JSON schema from a structural one, without descriptions and rules in CEL."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: schema[key] for key in _KEPT if key in schema}
    # In OpenAPI a bound has a sign that it is not included; in JSON schema that is the bound.
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(exclusive) is True:
            found[exclusive] = found.pop(bound)
    if "items" in schema:
        found["items"] = _json_schema(schema["items"])
    if schema.get("x-kubernetes-list-type") == "set":
        found["uniqueItems"] = True
    if "properties" in schema:
        required = schema.get("required", ())
        found["properties"] = {
            name: _json_schema(field) if name in required else _or_null(field)
            for name, field in schema["properties"].items()
        }
        found["additionalProperties"] = False
    return found


def _or_null(schema: Schema) -> Schema:
    """The schema of a field that may be null, which the API server takes for unset."""
    found = _json_schema(schema)
    if isinstance(found.get("type"), str) and "default" not in schema:
        found["type"] = [found["type"], "null"]
        if "enum" in found:
            found["enum"] = [*found["enum"], None]
    return found
