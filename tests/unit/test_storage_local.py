"""Files as objects: the promises of every store, and what only a disk can do wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from embertide.errors import ObjectMissing, OutputError, StorageError
from embertide.io.storage import local_files
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.io.storage.reading_ahead import begin_to_read
from embertide.io.storage.write_back import begin_write_back
from tests.support import small_disk
from tests.support.storage_contract import StorageContract


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}"


class TestLocal(StorageContract):
    """Files."""


def run(code: str, *arguments: str) -> str:
    """Run code in a process of its own, since limits and users cannot be taken back."""
    script = textwrap.dedent(code)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("closed", [False, True])
def test_no_room_for_the_file(tmp_path: Path, closed: bool) -> None:
    # The same code path as a full disk, which would need one that can be filled.
    out = run(
        """
        import resource, sys
        from embertide.errors import OutputError
        from embertide.io.storage.opening import open_storage

        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        storage = open_storage(None)
        for attempt in ("create", "write", "small"):
            try:
                if attempt == "write":
                    storage.write(sys.argv[1], b"x" * (3 << 20))
                else:
                    with storage.create(sys.argv[1]) as stream:
                        for _ in range(3):
                            stream.write(b"x" * (500_000 if attempt == "small" else 1 << 20))
                        if sys.argv[2] == "True":
                            stream.close()
            except OutputError as error:
                print(error)
        """,
        f"file://{tmp_path}/out/x",
        str(closed),
    )
    lines = out.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"file://{tmp_path}/out/x cannot be written: File too large; ")
        assert "run again" in line
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_another_users_directory(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("1")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "out").mkdir(mode=0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    out = run(
        """
        import os, sys
        from embertide.errors import AccessDenied
        from embertide.io.storage.opening import open_storage

        storage, root = open_storage(None), sys.argv[1]
        storage.stat(root)
        os.setuid(65534)
        calls = (
            lambda: storage.read(f"{root}/secret"),
            lambda: storage.write(f"{root}/out/x", b"1"),
            lambda: storage.create(f"{root}/out/deep/x").__enter__(),
            lambda: storage.write_if(f"{root}/out/x", b"1", None),
        )
        for call in calls:
            try:
                call()
            except AccessDenied as error:
                print(error)
        """,
        f"file://{tmp_path}",
    )
    lines = out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"file://{tmp_path}/secret cannot be read: permission denied")
    for line in lines[1:]:
        assert line.startswith(f"file://{tmp_path}/out/")
        assert "cannot be written: Permission denied" in line
    assert all("permissions" in line for line in lines)


def test_a_place_below_a_file(tmp_path: Path) -> None:
    storage = open_storage(None)
    (tmp_path / "file").write_text("1")
    uri = f"file://{tmp_path}/file/x"
    with pytest.raises(OutputError, match=f"{uri} cannot be written: .*{tmp_path}/file"):
        storage.write(uri, b"1")
    with pytest.raises(ObjectMissing, match=uri):
        storage.read(uri)
    assert storage.stat(uri) is None


def test_a_directory_is_no_object(tmp_path: Path) -> None:
    storage = open_storage(None)
    with pytest.raises(StorageError, match="Is a directory"):
        storage.read(f"file://{tmp_path}")
    (tmp_path / "d").mkdir()
    with pytest.raises(OutputError, match=f"file://{tmp_path}/d cannot be written"):
        storage.write(f"file://{tmp_path}/d", b"1")


def test_bare_paths_are_files(tmp_path: Path) -> None:
    storage = open_storage(None)
    info = storage.write(f"{tmp_path}/x", b"1")
    assert info.uri == f"file://{tmp_path}/x"
    assert storage.list(str(tmp_path)) == [info]


def test_links_are_followed_and_broken_ones_named(tmp_path: Path) -> None:
    storage = open_storage(None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x").write_text("1")
    (tmp_path / "e").mkdir()
    (tmp_path / "e/day").symlink_to(tmp_path / "data")
    assert [info.uri for info in storage.list(f"file://{tmp_path}/e")] == [
        f"file://{tmp_path}/e/day/x"
    ]
    (tmp_path / "e/gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ObjectMissing, match="e/gone"):
        storage.list(f"file://{tmp_path}/e")


def test_hidden_files_may_vanish_while_they_are_listed(tmp_path: Path) -> None:
    storage = open_storage(None)
    info = storage.write(f"file://{tmp_path}/x", b"1")
    # Like one that was renamed after its folder was read: a name without a file.
    (tmp_path / ".0123.part").symlink_to(tmp_path / "nowhere")
    assert storage.list(f"file://{tmp_path}", hidden=True) == [info]


def test_another_scheme(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"gs://b/x.*s3://.*file://"):
        open_storage(None).read("gs://b/x")


def test_files_get_the_users_mode_and_a_directory_goes_with_its_last_file(tmp_path: Path) -> None:
    storage = open_storage(None)
    umask = os.umask(0o027)
    try:
        storage.write(f"file://{tmp_path}/v/1/x", b"1")
    finally:
        os.umask(umask)
    assert (tmp_path / "v/1/x").stat().st_mode & 0o777 == 0o640
    storage.delete([f"file://{tmp_path}/v/1/x"])
    assert not (tmp_path / "v/1").exists()


def test_conditional_writes_leave_nothing_beside(tmp_path: Path) -> None:
    storage = open_storage(None)
    for expected in (None, None):
        storage.write_if(f"file://{tmp_path}/LATEST", b"1", expected)
    assert [path.name for path in tmp_path.iterdir()] == ["LATEST"]


def test_s3_library_is_not_loaded_for_files(tmp_path: Path) -> None:
    out = run(
        """
        import sys
        from embertide.io.storage.opening import open_storage
        open_storage(None).write(sys.argv[1], b"1")
        print("boto3" in sys.modules, "botocore" in sys.modules)
        """,
        f"{tmp_path}/x",
    )
    assert out.split() == ["False", "False"]


def test_the_disk_may_fill_up_while_syncing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"No space left on device; .*free space"):
        open_storage(None).write(f"file://{tmp_path}/x", b"1")
    assert list(tmp_path.iterdir()) == []


def test_the_disk_begins_before_the_file_is_complete(
    storage: Storage, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def begin(file: int, start: int, length: int) -> bool:
        # What was written so far has left our buffers: the file itself has it.
        begun.append((start, length, os.fstat(file).st_size))
        return begin_write_back(file, start, length)

    monkeypatch.setattr(local_files, "begin_write_back", begin)
    piece = bytes(3 << 20)
    with storage.create(f"{root}/part") as file:
        for _ in range(7):
            file.write(piece)
    nine = 3 * len(piece)
    assert begun == [(0, nine, nine), (nine, nine, 2 * nine)]
    assert storage.read(f"{root}/part") == piece * 7


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_the_system_takes_a_file_and_nothing_else(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(1 << 13))
        file.flush()
        assert begin_write_back(file.fileno(), 0, 1 << 13)
    read, write = os.pipe()
    try:
        assert not begin_write_back(write, 0, 1 << 13)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="other systems have no such call")
def test_the_disk_begins_with_files_in_their_order_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def advise(file: int, start: int, length: int, advice: int) -> None:
        begun.append((Path(f"/proc/self/fd/{file}").readlink().name, start, length, advice))

    monkeypatch.setattr(os, "posix_fadvise", advise)
    for name in "abc":
        (tmp_path / name).write_bytes(bytes(1000))
    uris = [f"file://{tmp_path}/{name}" for name in ("a", "missing", "b", "c")]
    assert begin_to_read(["s3://bucket/x", *uris], 1500) == 1500
    will_need = os.POSIX_FADV_WILLNEED
    assert begun == [("a", 0, 1000, will_need), ("b", 0, 500, will_need)]


@pytest.mark.skipif(bool(small_disk.missing()), reason=small_disk.missing())
def test_a_full_disk_gets_back_what_can_be_missed(tmp_path: Path) -> None:
    # Two threads find it full at the same time, neither file fits; one makes room for both.
    code = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from embertide.errors import OutputError
from embertide.io.storage.opening import open_storage

disk, storage, given = Path(os.environ["disk"]), open_storage(None), []
(disk / "kept").write_bytes(bytes(3 << 20))
data = [os.urandom(1_500_000), os.urandom(1_100_001)]
def write(number):
    with storage.create(f"file://{disk}/a/{number}") as file:
        for at in range(0, len(data[number]), 70_001):
            file.write(data[number][at : at + 70_001])
def give_back():
    given.append((disk / "kept").unlink(missing_ok=True))
def all_written():
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
try:
    all_written()
except OutputError as error:
    print("full" if "No space left on device" in str(error) else error)
print(storage.free_bytes(f"file://{disk}/not/there") >> 20, given)
with storage.making_room(f"file://{disk}", give_back):
    all_written()
print([storage.read(f"file://{disk}/a/{n}") == data[n] for n in range(2)], len(given))
try:
    with storage.making_room(f"file://{disk}", give_back):
        storage.write(f"file://{disk}/b", bytes(3 << 20))
except OutputError as error:
    print("full" if "No space left on device" in str(error) else error, len(given))
print(sorted(path.name for path in disk.rglob("*")))
"""
    out = small_disk.run_with_disk(tmp_path / "disk", 4 << 20, '"$python" -W error -c "$1"', code)
    assert out.splitlines() == [
        "full", "1 []", "[True, True] 1", "full 2", "['0', '1', 'a']",
    ]  # fmt: skip
