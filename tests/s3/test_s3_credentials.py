"""Keys in mounted files: they are taken, and taken anew when the Secret is replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embertide.errors import AccessDenied
from embertide.io.storage.opening import open_storage
from embertide.io.storage.protocol import Storage
from embertide.spec import naming
from embertide.spec.workers import StorageSettings
from tests.support.s3.server import S3Server, server_program, server_with_accounts

pytestmark = pytest.mark.s3

OLD, NEW = ("old-key", "old-secret"), ("new-key", "new-secret")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server whose accounts can be made and deleted."""
    with server_with_accounts(tmp_path_factory.mktemp("accounts")) as found:
        yield found


def admin(server: S3Server, *command: str) -> None:
    who = ("--access", server.access_key, "--secret", server.secret_key)
    run = (server_program(), "admin", *who, "--endpoint-url", server.endpoint, *command)
    subprocess.run(run, check=True)


def make_account(server: S3Server, keys: tuple[str, str]) -> None:
    admin(server, "create-user", "--access", keys[0], "--secret", keys[1], "--role", "admin")


class Mounted:
    """A folder as the kubelet mounts a Secret: links to a folder that is swapped as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._states = 0
        folder.mkdir()

    def write(self, keys: tuple[str, str]) -> None:
        self._states += 1
        state = self.folder / f"..{self._states}"
        state.mkdir()
        for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), keys, strict=True):
            (state / name).write_text(f"{value}\n")
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        (self.folder / "..new").symlink_to(state.name)
        (self.folder / "..new").rename(self.folder / "..data")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    """A mounted Secret, and no other credentials in this process."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    found = Mounted(tmp_path / "credentials")
    monkeypatch.setenv(naming.ENV_CREDENTIALS_FOLDER, str(found.folder))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return found


def opened(server: S3Server) -> Storage:
    settings = StorageSettings(endpoint_url=server.endpoint, region=server.region, max_attempts=1)
    return open_storage(settings)


def test_a_store_that_is_open_follows_the_secret(server: S3Server, mounted: Mounted) -> None:
    make_account(server, OLD)
    mounted.write(OLD)
    store = opened(server)
    store.write("s3://shop/a", b"1")
    make_account(server, NEW)
    admin(server, "delete-user", "--access", OLD[0])
    with pytest.raises(AccessDenied):
        store.read("s3://shop/a")
    mounted.write(NEW)
    assert store.read("s3://shop/a") == b"1"
    admin(server, "delete-user", "--access", NEW[0])


def test_keys_are_in_no_environment(server: S3Server, mounted: Mounted) -> None:
    """What a process and its children can be seen to have, in /proc."""
    make_account(server, OLD)
    mounted.write(OLD)
    code = (
        "from embertide.io.storage.opening import open_storage\n"
        "from embertide.spec.workers import StorageSettings\n"
        "import pathlib\n"
        f"s = StorageSettings(endpoint_url={server.endpoint!r}, region={server.region!r})\n"
        "open_storage(s).write('s3://shop/b', b'2')\n"
        "print(pathlib.Path('/proc/self/environ').read_bytes())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "EMBERTIDE_CREDENTIALS_FOLDER" in done.stdout
    assert OLD[1] not in done.stdout
    admin(server, "delete-user", "--access", OLD[0])


def test_variables_of_the_pod_come_first(
    server: S3Server, mounted: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted.write(("unknown", "unknown"))
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    opened(server).write("s3://shop/c", b"3")


def test_an_empty_folder_leaves_it_to_the_other_sources(
    server: S3Server, mounted: Mounted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "profile"
    keys = f"aws_access_key_id={server.access_key}\naws_secret_access_key={server.secret_key}"
    profile.write_text(f"[default]\n{keys}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    opened(server).write("s3://shop/d", b"4")


def test_keys_stay_where_the_secret_is_gone(server: S3Server, mounted: Mounted) -> None:
    mounted.write((server.access_key, server.secret_key))
    store = opened(server)
    store.write("s3://shop/e", b"")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        (mounted.folder / name).unlink()
    store.write("s3://shop/e", b"5")
