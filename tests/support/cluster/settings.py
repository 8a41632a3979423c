"""What the test run tells keeper.py, node_main.py and second_node.py, through the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.cluster.layout import Layout

_VARIABLE = "EMBERTIDE_CLUSTER_SETTINGS"


@dataclass(frozen=True)
class Settings:
    """``programs``: paths by name. ``images``: names in buildah's store. ``s3``: see ClusterS3."""

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
