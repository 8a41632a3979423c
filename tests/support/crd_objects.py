"""Hypothesis strategies for jobs, made from the definition's own schema.

They give what types, bounds and required fields of the definition allow. Its rules (CEL) are not
applied, so this is more than an API server stores.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from embertide.spec.crd import crd
from tests.support.operator_world import raw_job

Schema = dict[str, Any]
_INT32, _INT64 = 2**31, 2**63
_KEYS = st.sampled_from(
    [
        *("metadata", "spec", "labels", "annotations", "containers", "initContainers", "volumes"),
        *("volumeMounts", "mountPath", "env", "envFrom", "name", "tolerations", "nodeSelector"),
        *("affinity", "securityContext", "resources", "limits", "requests", "cpu", "memory"),
        *("imagePullSecrets", "ports", "containerPort", "schedulerName", "priorityClassName", ""),
    ]
)
_WORDS = st.sampled_from(
    [
        "worker",
        "job",
        "scratch",
        "1Gi",
        "-1",
        "500m",
        "1e30",
        "auto",
        "s3://shop/x",
        "26h",
        "9" * 20,
    ]
)
_SCALARS = st.none() | st.booleans() | _WORDS | st.text(max_size=4)
_NUMBERS = st.integers(-_INT64, _INT64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    _SCALARS | _NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value, with the names of a pod's fields among its keys."""


def objects(schema: Schema) -> st.SearchStrategy[Any]:
    """What types and bounds of a structural schema allow."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "boolean":
            return st.booleans()
        case "integer":
            return _integers(schema)
        case "number":
            least, most = schema.get("minimum"), schema.get("maximum")
            return st.floats(
                least,
                most,
                allow_nan=False,
                allow_infinity=False,
                exclude_min=schema.get("exclusiveMinimum", False),
                exclude_max=schema.get("exclusiveMaximum", False),
            )
        case "string":
            return _texts(schema)
        case "array":
            sizes = {"min_size": schema.get("minItems", 0), "max_size": 3}
            return st.lists(objects(schema["items"]), **sizes)
        case "object" if "properties" in schema:
            return _mappings(schema)
        case "object":
            return st.dictionaries(_KEYS, ANYTHING, max_size=4)
    return _untyped(schema)


def _integers(schema: Schema) -> st.SearchStrategy[int]:
    limit = _INT32 if schema["format"] == "int32" else _INT64
    least, most = schema.get("minimum", -limit), schema.get("maximum", limit - 1)
    return st.integers(least, most) | st.sampled_from([least, most])


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    least, most = schema.get("minLength", 0), schema.get("maxLength", 2048)
    if "pattern" in schema:
        texts: st.SearchStrategy[str] = st.from_regex(schema["pattern"])
    else:
        texts = _WORDS | st.text(min_size=least, max_size=min(most, 20))
    return texts.filter(lambda text: least <= len(text) <= most)


def _mappings(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: objects(field) for name, field in schema["properties"].items()}
    required = set(schema.get("required", ()))
    needed = {name: field for name, field in fields.items() if name in required}
    return st.fixed_dictionaries(
        needed, optional={name: field for name, field in fields.items() if name not in required}
    )


def _untyped(schema: Schema) -> st.SearchStrategy[Any]:
    """A field of several types, whose keywords bind the values of the type that they are about."""
    kinds = [st.booleans(), _NUMBERS]
    if "properties" in schema:
        kinds.append(_mappings(schema))
    if "items" in schema:
        kinds.append(st.lists(objects(schema["items"]), min_size=1, max_size=3))
    kinds.append(_texts(schema))
    return st.one_of(kinds)


def spec_schema() -> Schema:
    """That of ``spec``."""
    (version,) = crd()["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def fields(schema: Schema, path: tuple[str | int, ...] = ()) -> list[tuple[Any, Schema]]:
    """Every field below a schema with its path, the first items of lists included."""
    schemas = []
    for name, field in schema.get("properties", {}).items():
        schemas += [((*path, name), field), *fields(field, (*path, name))]
    if "items" in schema:
        schemas += fields(schema["items"], (*path, 0))
    return schemas


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """A job that runs, with a few fields replaced; or one with nothing but made-up fields."""
    job = raw_job()
    if draw(st.integers(0, 19)) == 0:
        job["spec"] = draw(_SPECS)
        return job
    for path, values in draw(st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=3)):
        _put(job["spec"], path, draw(values))
    return job


_SPECS = objects(spec_schema())
_FIELDS = [(path, objects(field)) for path, field in fields(spec_schema())]


def _put(at: Any, path: tuple[str | int, ...], value: Any) -> None:
    """Set what a path leads to; nothing where an earlier change left no such place."""
    for part in path[:-1]:
        if isinstance(part, int):
            at = at[0] if isinstance(at, list) and at else None
        elif isinstance(at, dict):
            at = at.setdefault(part, {})
    if isinstance(at, dict):
        at[path[-1]] = value
