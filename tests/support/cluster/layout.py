"""Where the cluster's files are and which addresses it has: facts that all its parts share."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.shared_cache import SHARED_CACHE

# What is built, and all that a running cluster writes; one can run on a machine.
CACHE = SHARED_CACHE / "cluster"

# 198.18.0.0/15 is set aside for tests (RFC 2544), so no real network is hidden by it.
RANGE = "198.18.0.0/15"
NODE = "198.18.0.1"  # API server, S3 server and DNS
HOST = "198.18.0.254"  # this machine, as the cluster sees it
PREFIX = 24
PODS = "198.18.128.0/17"
SERVICES = "198.19.0.0/16"
FIRST_SERVICE = "198.19.0.1"  # kubernetes.default
API = f"https://{NODE}:6443"
S3_PORT = 9000

# One link of this name can exist on a machine: it keeps a second cluster from starting.
HOST_LINK = "embertide0"

_VARIABLE = "EMBERTIDE_CLUSTER_SETTINGS"


@dataclass(frozen=True)
class Machine:
    """A node of the cluster: its name, its address and the range of its pods."""

    name: str
    address: str
    pods: str


FIRST = Machine("node-1", NODE, "198.18.128.0/18")
SECOND = Machine("node-2", "198.18.0.2", "198.18.192.0/18")


@dataclass(frozen=True)
class Layout:
    """Files of one cluster under ``root``.

    ``state`` is made again at every start and left for reading afterwards, without ``objects``.
    """

    root: Path = CACHE

    @property
    def state(self) -> Path:
        """All that one run writes."""
        return self.root / "state"

    @property
    def kubeconfig(self) -> Path:
        """For kubectl on this machine; certificates are inside."""
        return self.root / "kubeconfig"

    @property
    def lock(self) -> Path:
        """Held while a cluster is up."""
        return self.root / "lock"

    @property
    def node_log(self) -> Path:
        """What keeper.py and node_main.py say."""
        return self.root / "node.log"

    @property
    def logs(self) -> Path:
        """One file a component, and audit.log."""
        return self.state / "log"

    @property
    def objects(self) -> Path:
        """What is in the S3 server; removed when the cluster ends."""
        return self.state / "s3"

    @property
    def certificates(self) -> Path:
        """The authority, keys and certificates of this run."""
        return self.state / "pki"

    @property
    def config(self) -> Path:
        """Configuration files of the components."""
        return self.state / "config"

    def of(self, machine: Machine) -> Path:
        """What one node keeps: containers, volumes, and logs of pods under ``pods``."""
        return self.state / machine.name

    def config_of(self, machine: Machine) -> Path:
        """Configuration files of one node's components."""
        return self.config / machine.name


@dataclass(frozen=True)
class Settings:
    """What a test run hands to the processes of its node, through the environment.

    ``programs``: paths by name. ``images``: names in buildah's store. ``s3``: see ClusterS3.
    """

    root: str
    programs: Mapping[str, str]
    image_store: str
    images: tuple[str, ...]
    s3: Mapping[str, str]

    @property
    def layout(self) -> Layout:
        """Where the cluster's files are."""
        return Layout(Path(self.root))

    @property
    def environment(self) -> dict[str, str]:
        """The variable for another process."""
        return {_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def of_this_process(cls) -> Settings:
        """What this process was told."""
        return cls(**json.loads(os.environ[_VARIABLE]))
