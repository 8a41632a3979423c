"""The index of ``spec.push``, by commands, by a run and by a pod, with a real PostgreSQL."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from embertide.cli import main
from embertide.edge.indexes.push.configured import reader_name
from embertide.errors import InputError, StoreUnavailable, VersionHeld
from embertide.io.storage.protocol import Storage
from embertide.io.versions.publish import rollback
from embertide.spec.manifest import EmbeddingJob, load_manifest
from embertide.spec.reports import Ending, PushReport
from tests.support.chained import publish_chained
from tests.support.commands import Commands, Done
from tests.support.compared import Rows, publish_rows, random_rows
from tests.support.pods import answer_of_pod
from tests.support.ports import free_port
from tests.support.small_job import NODES, SmallJob
from tests.support.versions import CURRENT, NEXT, OLD

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def name() -> str:
    """That readers use, new in each test."""
    return f"shop_{secrets.token_hex(4)}"


@pytest.fixture
def small(tmp_path: Path, postgres: str, name: str) -> SmallJob:
    """A job with an index."""
    job = SmallJob.make(tmp_path / "job")
    job.write_manifest(push={"uri": postgres, "name": name, "searchIndex": False})
    return job


@pytest.fixture
def output(small: SmallJob) -> str:
    return f"file://{small.output}"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command line; its exit code and what it printed."""

    def run(*argv: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            main(list(argv))
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def in_index(postgres: str, name: str) -> Rows:
    """What readers of a name see."""
    with psycopg.connect(postgres) as connection:
        rows = connection.execute(f"SELECT id, embedding::real[] FROM {name}").fetchall()
    return {key: np.array(vector, np.float32) for key, vector in rows}


def see(postgres: str, name: str, rows: Rows) -> None:
    found = in_index(postgres, name)
    assert found.keys() == rows.keys()
    assert all(np.array_equal(found[key], vector) for key, vector in rows.items())


def job_of(small: SmallJob) -> EmbeddingJob:
    return load_manifest(Path(small.manifest))


def push_pod(folder: Path, small: SmallJob, **env: str) -> tuple[int, dict[str, Any]]:
    return answer_of_pod("push", folder, job_of(small), **env)


# Commands


def test_the_command_takes_index_and_options_of_the_manifest(
    storage: Storage, small: SmallJob, output: str, postgres: str, name: str, cli: Cli
) -> None:
    rows = random_rows(40, 3, 1)
    publish_rows(storage, output, OLD, rows)
    code, out, _ = cli("push", small.manifest)
    assert code == 0
    assert f"{name}: 40 rows of {OLD}" in out
    see(postgres, name, rows)
    # Options go before it.
    code, out, _ = cli("push", small.manifest, "--name", f"{name}_b", "--normalize")
    assert code == 0
    lengths = [np.linalg.norm(vector) for vector in in_index(postgres, f"{name}_b").values()]
    assert np.allclose(lengths, 1, atol=1e-5)


def test_an_index_has_to_be_named(small: SmallJob, cli: Cli) -> None:
    small.write_manifest()
    code, _, err = cli("push", small.manifest)
    assert code == 2
    assert "give --to URL, or the index in spec.push of JOB.yaml" in " ".join(err.split())


def test_all_rows_are_sent_where_the_manifest_asks_for_them(
    storage: Storage, small: SmallJob, output: str, postgres: str, name: str, cli: Cli
) -> None:
    rows = random_rows(40, 3, 1)
    newer = {key: vector + 1 if at < 3 else vector for at, (key, vector) in enumerate(rows.items())}
    publish_chained(storage, output, OLD, rows, 0.0)
    assert cli("push", small.manifest)[0] == 0
    publish_chained(storage, output, CURRENT, newer, 0.0)
    code, out, _ = cli("push", small.manifest, "--rows", "all")
    assert (code, "was loaded" in out) == (0, True)
    publish_chained(storage, output, NEXT, rows, 0.0)
    code, out, _ = cli("push", small.manifest)
    assert (code, "was made of the version before and its delta" in out) == (0, True)
    see(postgres, name, rows)


def test_going_back_says_how_the_index_follows(
    storage: Storage, small: SmallJob, output: str, cli: Cli
) -> None:
    publish_rows(storage, output, OLD, random_rows(40, 3, 1))
    publish_rows(storage, output, CURRENT, random_rows(40, 3, 2))
    publish_rows(storage, output, NEXT, random_rows(9, 3, 2), held=("rows removed",))
    for command in (("rollback", small.manifest, OLD), ("release", small.manifest)):
        code, out, _ = cli(*command)
        assert code == 0
        assert "embertide push JOB.yaml" in out
        assert "kubectl annotate --overwrite ej small embertide.dev/push-requested=" in out
    small.write_manifest()
    assert "push" not in cli("rollback", small.manifest, OLD)[1]


def test_jobs_of_a_schedule_share_a_name(small: SmallJob) -> None:
    job = job_of(small)
    assert reader_name(job) == "small"
    nightly = job.metadata.model_copy(
        update={"name": "nightly-20261122-0300", "labels": {"embertide.dev/schedule": "night-ly"}}
    )
    assert reader_name(job.model_copy(update={"metadata": nightly})) == "night_ly"


# A run


def run(small: SmallJob, *options: str) -> Done:
    return Commands(small.folder).run("run", small.manifest, "--quiet", *options)


def test_a_run_pushes_what_it_has_published_but_not_what_is_held(
    small: SmallJob, postgres: str, name: str
) -> None:
    done = run(small)
    assert done.code == 0, done.err
    assert f"{name}: {NODES} rows of " in done.out
    before = in_index(postgres, name)
    assert len(before) == NODES
    # Every row moves, and the gate allows none to.
    small.write_features(np.arange(NODES), np.random.default_rng(7).normal(size=(NODES, 4)))
    index = {"uri": postgres, "name": name}
    small.write_manifest(push=index, output__gate={"minCosine": 1.0})
    done = run(small)
    assert done.code == VersionHeld.exit_code
    see(postgres, name, before)
    small.write_manifest(push=index)
    done = run(small, "--no-push")
    assert done.code == 0, done.err
    see(postgres, name, before)


def test_a_push_that_fails_leaves_the_version_published(small: SmallJob) -> None:
    small.write_manifest(push={"uri": f"postgresql://127.0.0.1:{free_port()}/db"})
    done = run(small)
    assert done.code == StoreUnavailable.exit_code
    assert "is published, but the index of spec.push does not have it:" in done.err
    assert "cannot be reached" in done.err
    assert (small.output / "LATEST").exists()


# A pod


def test_a_pod_switches_readers_and_goes_back(
    tmp_path: Path, storage: Storage, small: SmallJob, output: str, postgres: str, name: str
) -> None:
    versions = {OLD: random_rows(40, 3, 1), CURRENT: random_rows(30, 3, 2)}
    for version, rows in versions.items():
        publish_rows(storage, output, version, rows)
        code, message = push_pod(tmp_path / version, small, EMBERTIDE_VERSION=version)
        report = PushReport.model_validate(message)
        assert (code, report.version, report.rows) == (0, version, len(rows))
        assert report.names == [name]
        see(postgres, name, rows)
    rollback(storage, output, OLD)
    # What the job itself published is not current any more, and asked for is what is.
    code, message = push_pod(tmp_path / "own", small, EMBERTIDE_VERSION=CURRENT)
    assert (code, message["version"], message["current"]) == (0, "", OLD)
    see(postgres, name, versions[CURRENT])
    code, message = push_pod(tmp_path / "asked", small, EMBERTIDE_VERSION="")
    assert (code, message["version"]) == (0, OLD)
    see(postgres, name, versions[OLD])


def test_a_pod_says_what_is_wrong_and_no_secret(
    tmp_path: Path, storage: Storage, small: SmallJob, output: str
) -> None:
    publish_rows(storage, output, OLD, random_rows(40, 3, 1))
    uri = f"postgresql://shop@127.0.0.1:{free_port()}/db"
    small.write_manifest(push={"uri": uri})
    code, message = push_pod(tmp_path / "down", small, PGPASSWORD="hunter2-hunter2")
    ending = Ending.model_validate(message)
    assert (code, ending.reason, ending.permanent) == (5, "StoreUnavailable", False)
    assert "127.0.0.1" in ending.message
    assert "hunter2" not in json.dumps(message)
    small.write_manifest(
        push={"uri": f"lancedb://{tmp_path}/index", "name": "x", "nodeType": "user"}
    )
    code, message = push_pod(tmp_path / "type", small)
    assert (code, message["permanent"]) == (InputError.exit_code, True)
    small.write_manifest()
    code, message = push_pod(tmp_path / "none", small)
    assert (code, message["reason"]) == (2, "Manifest")
    assert "spec.push" in message["message"]
