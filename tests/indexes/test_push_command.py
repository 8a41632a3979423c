"""The command `embertide push`, with a real PostgreSQL."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import psycopg
import pytest

from embertide.cli import main
from embertide.errors import InputError, OutputError, StoreUnavailable
from embertide.io.storage.protocol import Storage
from tests.support.compared import publish_rows, random_rows
from tests.support.ports import free_port
from tests.support.versions import CURRENT, OLD


class Command:
    """Runs a command line and keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *argv: str) -> int:
        with pytest.raises(SystemExit) as left:
            main(["push", *argv])
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return int(left.value.code or 0)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def test_it_prints_what_readers_see(
    storage: Storage, output: str, postgres: str, command: Command
) -> None:
    name = f"shop_{secrets.token_hex(4)}"
    where = ("--output", output, "--to", postgres, "--name", name)
    publish_rows(storage, output, OLD, random_rows(40, 3, 1))
    assert command(*where) == 0
    table = f"{name}_20261121t041920z_8000ff"
    assert f"{name}: 40 rows of {OLD}; {table} was loaded, and is verified" in command.out
    publish_rows(storage, output, CURRENT, random_rows(30, 3, 2))
    assert command(*where, "--json", "--keep", "1") == 0
    found = json.loads(command.out)
    assert found["dropped"] == [table]
    assert found["tables"][0] == {
        "alias": name,
        "table": f"{name}_20261121t041921z_8000ff",
        "rows": 30,
        "previous": OLD,
        "made": "full",
    }
    assert command(*where, "--version", "previous") == 0
    assert f"readers saw {CURRENT} before" in command.out


def test_view_keeps_its_grants_and_its_name_is_not_taken(
    storage: Storage, output: str, postgres: str, command: Command
) -> None:
    name = f"shop_{secrets.token_hex(4)}"
    where = ("--output", output, "--to", postgres, "--name", name)
    publish_rows(storage, output, OLD, random_rows(40, 3, 1))
    assert command(*where) == 0
    with psycopg.connect(postgres, autocommit=True) as connection:
        role = f"reader_{secrets.token_hex(4)}"
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(f"GRANT SELECT ON {name} TO {role}")
        # Other columns: the view is made again.
        publish_rows(storage, output, CURRENT, random_rows(40, 5, 1))
        assert command(*where) == 0
        connection.execute(f"SET ROLE {role}")
        (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,)
        assert count == 40
        connection.execute("RESET ROLE")
        other = f"taken_{secrets.token_hex(4)}"
        connection.execute(f"CREATE TABLE {other} (x int)")
    code = command("--output", output, "--to", postgres, "--name", other)
    assert code == OutputError.exit_code
    assert "is a table or something else, not a view" in command.err


def test_locations_that_are_wrong_or_have_secrets(
    storage: Storage, output: str, command: Command, tmp_path: Path
) -> None:
    publish_rows(storage, output, OLD, random_rows(4, 3, 1))
    where = ("--output", output, "--name", "x", "--to")
    assert command(*where, "redis://host/0") == InputError.exit_code
    assert "must begin with one of postgresql, qdrant, milvus, lancedb" in command.err
    for location in ("postgresql://me:hunter2@host/db", "qdrant+https://h:6333?api_key=hunter2"):
        assert command(*where, location) == InputError.exit_code
        assert "has a secret in it" in command.err
        assert "hunter2" not in command.err
    assert command(*where, f"postgresql://127.0.0.1:{free_port()}/db") == StoreUnavailable.exit_code
    assert "cannot be reached" in command.err
    assert command(*where, "lancedb://host/x") == InputError.exit_code
    assert "must be lancedb:///PATH" in command.err
    assert command(*where, f"lancedb://{tmp_path}/l", "--version", "nope") != 0
    assert "no complete version nope" in command.err
