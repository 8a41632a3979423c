"""A kind of store is one entry and one module; all else follows from the entry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from embertide.errors import StorageError
from embertide.io.readers.table_snapshot import data_uri
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.launch.bootstrap.fork_server import PRELOAD, preloads
from embertide.launch.output_lock import lock_path
from embertide.spec.base import normalise_uri
from embertide.spec.schemes import SCHEMES, any_pattern, is_local, scheme_of, uri_rule
from embertide.spec.storage import StorageSettings
from tests.support.paths import ROOT
from tests.support.storage_contract import StorageContract


@pytest.fixture
def disk() -> Iterator[None]:
    """The scheme ``disk`` is known for as long as a test takes."""
    from tests.support import disk_store

    SCHEMES["disk"] = disk_store.DISK
    yield
    del SCHEMES["disk"]


@pytest.mark.usefixtures("disk")
class TestAnotherBackend(StorageContract):
    """It promises what all stores do."""

    @pytest.fixture
    def storage(self) -> Storage:
        return open_storage(None)

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"disk://nas{tmp_path}"


@pytest.mark.usefixtures("disk")
def test_a_manifest_may_name_another_backend() -> None:
    assert normalise_uri("disk://nas/a") == "disk://nas/a"
    with pytest.raises(ValueError, match=r"is 'disk://x/a'; must be disk://nas/path"):
        normalise_uri("disk://x/a")
    with pytest.raises(ValueError, match="use s3://bucket/path, disk://nas/path, file:///absolute"):
        normalise_uri("ftp://a/b")
    assert "self.matches(r'^disk://nas(/|$)')" in uri_rule("self")
    assert re.match(f"^({any_pattern()})", "disk://nas")


@pytest.mark.usefixtures("disk")
def test_its_client_is_imported_once_for_a_run() -> None:
    text = '{"uri": "disk://nas/a"}'
    assert preloads(text) == ("tests.support.disk_store", PRELOAD)
    assert preloads("file:///a") == (PRELOAD,)


@pytest.mark.parametrize(
    ("uri", "local"),
    [
        ("/a", True),
        ("file:///a", True),
        ("s3://b/a", False),
        ("S3://b/a", False),
        ("a/b", False),
        ("disk://nas/a", False),
    ],
)
def test_what_is_local(uri: str, local: bool) -> None:
    assert is_local(uri) is local


def test_an_unknown_scheme_is_refused_with_those_there_are() -> None:
    message = r"ftp://a/b: unknown scheme; use s3://bucket/path or file:///absolute/path"
    with pytest.raises(StorageError, match=f"^{message}$"):
        open_storage(None).read("ftp://a/b")
    assert scheme_of("ftp://a/b") is None


def test_one_output_has_one_lock_however_its_uri_is_written(tmp_path: Path) -> None:
    settings = StorageSettings()
    local = {lock_path(uri, settings) for uri in (f"file://{tmp_path}", f"{tmp_path}/")}
    remote = {lock_path(uri, settings) for uri in ("s3://b/a", "s3://b/a/")}
    assert len(local) == len(remote) == 1
    assert lock_path("s3://b/a", StorageSettings(endpoint_url="https://minio:9000")) not in remote


def test_tables_may_name_a_store_as_other_tools_do() -> None:
    assert data_uri("s3://b/t", "s3a://b/t/part.parquet") == "s3://b/t/part.parquet"


ALLOWED = {"spec/schemes.py", "io/storage/s3_client.py", "io/storage/s3_errors.py",
           "io/storage/s3.py", "io/storage/local.py", "io/storage/local_errors.py"}  # fmt: skip
"""The entries, and the stores of each scheme, which take their own URIs apart."""
TEST = re.compile(r"""(startswith\(\(?|[!=]= ?|\bin \(?)["'](s3|file):?(//)?["']""")


def test_no_other_module_compares_schemes_as_text() -> None:
    package = ROOT / "worker" / "embertide"
    tests = {
        f"{path.relative_to(package)}:{number}"
        for path in package.rglob("*.py")
        if str(path.relative_to(package)) not in ALLOWED
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if TEST.search(line) or re.search(r"[\"']s3://[\"'] in ", line)
    }
    assert tests == set()
