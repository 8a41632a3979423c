"""The version to compare with, as far as comparing needs its manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from embertide.errors import EmbertideError
from embertide.facts.telemetry.comparison import COMPARED
from embertide.io.compare.base_rows import Previous
from embertide.io.storage.protocol import Storage
from embertide.io.versions.manifest import read_manifest
from embertide.io.versions.parts import PartDigest
from embertide.io.versions.pointer import read_pointer
from embertide.spec.result_names import label_of, manifest_results
from embertide.spec.version_names import version_uri

_UNMARKED = "not compared with {version}: its manifest does not have the ranges of ids of its parts"
_UNREADABLE = "not compared with the current version of {uri}, which cannot be read: {error}"


@dataclass(frozen=True)
class BaseType:
    """One result of the version: the rows of a node type.

    Attributes:
        ids: kind of its ids: ``dense``, ``int64`` or ``string``.
        duplicate_rows: what its own comparison has counted; None where it has none.
        paths: parts with the lengths of its rows' paths (``travel.py``).
    """

    rows: int
    dim: int
    ids: str
    dtype: str
    parts: list[dict[str, Any]]
    duplicate_rows: int | None
    paths: list[dict[str, Any]] = field(default_factory=list)

    @property
    def marked(self) -> bool:
        """Whether every part with rows has the range of its keys."""
        return all(part.get("first_key") for part in self.parts if part["rows"])


@dataclass(frozen=True, kw_only=True)
class Base:
    """A version to compare with, or why there is none.

    Attributes:
        state, why: as in :class:`embertide.facts.telemetry.comparison.Comparison`.
        version: its name; "" where there is none.
        uri: of the version.
        model: digest of the model that it was computed with.
        types: by the key of the result.
        read: edge type -> rows of its input.
    """

    state: str
    why: str = ""
    version: str = ""
    uri: str = ""
    model: str = ""
    types: dict[str, BaseType]
    read: dict[str, int]

    @classmethod
    def none(cls, state: str, why: str = "") -> Self:
        """There is nothing to compare with."""
        return cls(state=state, why=why, types={}, read={})

    @classmethod
    def of(cls, output_uri: str, version: str, manifest: dict[str, Any]) -> Self:
        """From a version's manifest."""
        types = {
            key: BaseType(
                rows=entry["rows"],
                dim=entry["dim"],
                ids=entry.get("ids", ""),
                dtype=manifest.get("dtype", "float32"),
                parts=entry["parts"],
                duplicate_rows=_duplicates(manifest, label_of(key)),
                paths=(entry.get("delta") or {}).get("paths", {}).get("parts", []),
            )
            for key, entry in manifest_results(manifest).items()
        }
        marked = all(of_type.marked for of_type in types.values())
        return cls(
            state=COMPARED if marked else "failed",
            why="" if marked else _UNMARKED.format(version=version),
            version=version,
            uri=version_uri(output_uri, version),
            model=(manifest.get("model") or {}).get("digest", ""),
            types=types,
            read=(manifest.get("read") or {}).get("edges") or {},
        )

    def previous(self, storage: Storage, key: str, kind: str, model: str) -> Previous | None:
        """A result to compare ours with; None where that is not possible.

        Args:
            key: of both.
            kind: of our ids; rows of ids of another kind have none in common.
            model: digest of ours.
        """
        of_type = self.types.get(key)
        if self.state != COMPARED or of_type is None or of_type.ids != kind:
            return None
        return Previous(
            storage=storage,
            uri=self.uri,
            kind=kind,
            dim=of_type.dim,
            rows=of_type.rows,
            dtype=of_type.dtype,
            parts=[PartDigest(**part) for part in of_type.parts],
            same_space=model == self.model,
            paths=[PartDigest(**part) for part in of_type.paths],
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` is the way back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """What :meth:`to_json` described."""
        types = {name: BaseType(**entry) for name, entry in data["types"].items()}
        return cls(**{**data, "types": types})


def _duplicates(manifest: dict[str, Any], name: str) -> int | None:
    types = (manifest.get("comparison") or {}).get("types") or []
    return next((item["duplicate_rows"] for item in types if item["name"] == name), None)


def current_base(storage: Storage, output_uri: str) -> Base:
    """The current version of an output; its problem if it cannot be read."""
    try:
        pointer = read_pointer(storage, output_uri)
        if pointer is None:
            return Base.none("first")
        manifest, _ = read_manifest(storage, output_uri, pointer.version)
        return Base.of(output_uri, pointer.version, manifest)
    except EmbertideError as error:
        return Base.none("failed", _UNREADABLE.format(uri=output_uri, error=error))
