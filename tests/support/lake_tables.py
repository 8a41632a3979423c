"""Tables whose metadata says which of their files count, written as their formats do."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FIRST = pa.table({"src": [0, 1], "dst": [1, 0], "day": ["a", "b"]})


@dataclass(frozen=True)
class LakeTable:
    """A table in a folder.

    Attributes:
        format: as messages name it.
        seen: a pattern of the metadata's path within the folder.
        rows: that the table has; its files of data hold more.
    """

    write: Callable[[Path], None]
    format: str
    seen: str
    rows: int = 2

    @property
    def described(self) -> str:
        """The format with its article."""
        return f"{'an' if self.format == 'Iceberg' else 'a'} {self.format}"


def delta_compacted(folder: Path) -> None:
    """Two commits, compacted: the first two files stay beside the one that replaced them."""
    from deltalake import DeltaTable, write_deltalake

    for row in range(2):
        write_deltalake(folder, FIRST.slice(row, 1), mode="append")
    DeltaTable(folder).optimize.compact()


def delta_deleted(folder: Path) -> None:
    """A row deleted, by a file without it: the old one stays."""
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(folder, pa.concat_tables([FIRST, FIRST.set_column(0, "src", [[7, 7]])]))
    DeltaTable(folder).delete("src = 7")


def delta_partitioned(folder: Path) -> None:
    """Two partitions, overwritten."""
    from deltalake import write_deltalake

    for _ in range(2):
        write_deltalake(folder, FIRST, partition_by=["day"], mode="overwrite")


def iceberg(folder: Path, *, partitioned: bool = False) -> None:
    """Rows overwritten; data in `data/`, metadata beside that."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.transforms import IdentityTransform

    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{folder.parent}")
    try:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", FIRST.schema, location=f"file://{folder}")
        if partitioned:
            with table.update_spec() as spec:
                spec.add_field("day", IdentityTransform(), "day")
        table.append(FIRST)
        table.overwrite(FIRST)
    finally:
        catalog.close()


def iceberg_partitioned(folder: Path) -> None:
    """As `iceberg`, in folders of a partition."""
    iceberg(folder, partitioned=True)


def write(path: Path, content: bytes = b"{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_rows(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(FIRST, path)


def iceberg_hadoop(folder: Path) -> None:
    """The metadata of a table without a catalog."""
    write(folder / "metadata" / "v1.metadata.json")
    write(folder / "metadata" / "version-hint.text", b"1")
    for name in ("a", "b"):
        write_rows(folder / "data" / "day=a" / f"{name}.parquet")


def hudi(folder: Path) -> None:
    """Two slices of one group of files: https://hudi.apache.org/tech-specs."""
    write(folder / ".hoodie" / "hoodie.properties", b"hoodie.table.name=t\n")
    group = uuid.uuid4()
    for instant in ("20260101000000000", "20260102000000000"):
        write(folder / ".hoodie" / f"{instant}.commit")
        write_rows(folder / "day=a" / f"{group}-0_0-1-0_{instant}.parquet")
    write(folder / "day=a" / ".hoodie_partition_metadata", b"commitTime=20260101000000000\n")


def hive_acid(folder: Path) -> None:
    """A base of a compaction, and the delta that it replaced."""
    for name in ("delta_0000001_0000001_0000", "base_0000001_v0000007"):
        write_rows(folder / "day=a" / name / "bucket_00000")
        write(folder / "day=a" / name / "_orc_acid_version", b"2")


def paimon(folder: Path) -> None:
    """A table without partitions: https://paimon.apache.org/docs/master/concepts/spec."""
    write(folder / "snapshot" / "snapshot-1")
    write(folder / "snapshot" / "LATEST", b"1")
    write(folder / "schema" / "schema-0")
    write(folder / "manifest" / f"manifest-{uuid.uuid4()}-0", b"Obj")
    for number in range(2):
        write_rows(folder / "bucket-0" / f"data-{uuid.uuid4()}-{number}.parquet")


def ducklake(folder: Path) -> None:
    """Its metadata is in a database; its files are known by their names."""
    for _ in range(2):
        write_rows(folder / "day=a" / f"ducklake-{uuid.uuid4()}.parquet")


def spark_streaming(folder: Path) -> None:
    """The sink's log names a file; the other one a failed batch left."""
    for _ in range(2):
        write_rows(folder / f"part-00000-{secrets.token_hex(8)}.snappy.parquet")
    named = next(folder.glob("*.parquet"))
    entry = json.dumps({"path": f"file://{named}", "action": "add"})
    write(folder / "_spark_metadata" / "0", f"v1\n{entry}\n".encode())


TABLES = {
    "delta compacted": LakeTable(delta_compacted, "Delta", "_delta_log/"),
    "delta deleted": LakeTable(delta_deleted, "Delta", "_delta_log/"),
    "delta partitioned": LakeTable(delta_partitioned, "Delta", "_delta_log/"),
    "iceberg": LakeTable(iceberg, "Iceberg", r"metadata/0000\d-.*\.metadata\.json"),
    "iceberg partitioned": LakeTable(
        iceberg_partitioned, "Iceberg", r"metadata/0000\d-.*\.metadata\.json"
    ),
    "iceberg of hadoop": LakeTable(iceberg_hadoop, "Iceberg", r"metadata/v.*"),
    "hudi": LakeTable(hudi, "Hudi", r"(day=a/)?\.hoodie(/|_partition_metadata)"),
    "hive acid": LakeTable(
        hive_acid, "Hive ACID", r"day=a/(base_|delta_0000001_)\w+/(_orc_acid_version)?"
    ),
    "paimon": LakeTable(paimon, "Paimon", "snapshot/"),
    "ducklake": LakeTable(ducklake, "DuckLake", r"day=a/ducklake-.*\.parquet"),
    "spark streaming": LakeTable(spark_streaming, "Spark streaming", "_spark_metadata/"),
}


def data_files(folder: Path) -> list[Path]:
    """Files of a table that a reader of folders would take for its data."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if not any(part[0] in "_." for part in path.relative_to(folder).parts)
        and path.read_bytes()[:4] == b"PAR1"
    )
