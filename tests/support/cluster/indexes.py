"""An index that pods of the cluster reach, and jobs that are pushed into it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import psycopg

from tests.support.cluster.jobs import Jobs, Manifest, find_condition
from tests.support.cluster.layout import HOST, RANGE
from tests.support.postgres import Network, postgres

_SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}


@dataclass(frozen=True)
class Database:
    """A server that pods reach with a password, and this machine without one."""

    here: str
    port: int
    password: str

    def rows(self, name: str) -> dict[int, np.ndarray]:
        """What readers of a name see."""
        with psycopg.connect(self.here) as connection:
            rows = connection.execute(f"SELECT id, embedding::real[] FROM {name}").fetchall()
        return {key: np.array(vector, np.float32) for key, vector in rows}

    def push_spec(self, jobs: Jobs, name: str) -> Manifest:
        """``spec.push`` of a job whose readers use this name."""
        return {
            "uri": f"postgresql://postgres@{HOST}:{self.port}/postgres",
            "name": name,
            "credentialsSecret": "index",
            "image": jobs.cluster.images["push"],
            "resources": _SMALL,
        }

    def make_secret(self, jobs: Jobs) -> None:
        """Create the Secret that ``spec.push`` names."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "index"}}
        jobs.apply(secret | {"stringData": {"PGPASSWORD": self.password}})


@contextmanager
def database_of_pods() -> Iterator[Database]:
    """PostgreSQL on this machine, at its address in the cluster's network."""
    password = secrets.token_hex(12)
    with postgres(Network(HOST, RANGE, password)) as uri:
        port = urlsplit(uri).port
        assert port is not None
        yield Database(uri, port, password)


def await_pushed(jobs: Jobs, job: str, version: str) -> Manifest:
    """Wait until the job's status says that readers of the index have a version."""

    def is_pushed(status: Manifest) -> bool:
        done = find_condition(status, "Pushed").get("status") == "True"
        return done and status["push"]["version"] == version

    return jobs.await_(job, is_pushed, 120)
