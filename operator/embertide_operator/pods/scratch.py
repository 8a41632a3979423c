"""The scratch volume of a worker: its size where tensors are on disk, and where it is mounted.

A volume of a StorageClass is made for each pod and goes with it. Without one the volume is on the
node's disk, of which the worker's container requests as much: files of tensors have no names, so
the kubelet does not count them, and only the request keeps room for them.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.api.routes import Object
from embertide_operator.config.pod_template import merge
from embertide_operator.config.settings import Settings

VOLUME = "scratch"
_STORAGE = "ephemeral-storage"


def scratch_volume(job: EmbeddingJob, size: int, settings: Settings) -> Object:
    """The volume of a pod; a ``size`` of 0 bytes is that of a run without tensors on disk."""
    if not size:
        return {"name": VOLUME, "emptyDir": {}}
    storage_class = job.spec.workers.scratch_storage_class or settings.scratch_storage_class
    if not storage_class:
        return {"name": VOLUME, "emptyDir": {"sizeLimit": str(size)}}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": str(size)}},
    }
    return {"name": VOLUME, "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def with_scratch(template: Object, job: EmbeddingJob, size: int) -> Object:
    """A worker's whole template with the volume at ``workers.scratch``, and room on the node."""
    worker: Object = {"name": naming.CONTAINER}
    mount = _mount(template, job)
    if mount:
        worker |= {"volumeMounts": [{"name": VOLUME, "mountPath": mount}]}
    if size and _on_node(template) and not _names_storage(template):
        worker |= {"resources": {"requests": {_STORAGE: str(size)}}}
    return merge(template, {"spec": {"containers": [worker]}})


def _mount(template: Object, job: EmbeddingJob) -> str:
    """Where the volume is to be mounted too; "" where a mount has the folder already."""
    folder = job.spec.workers.scratch
    # The root is the image's.
    if folder is None or PurePosixPath(folder) == PurePosixPath("/"):
        return ""
    mounts = _worker(template).get("volumeMounts") or []
    paths = [str(item.get("mountPath", "")) for item in mounts]
    covered = any(path and PurePosixPath(folder).is_relative_to(path) for path in paths)
    return "" if covered else folder


def _on_node(template: Object) -> bool:
    """Whether the volume is ours on the node's disk, and no other's of that name."""
    volumes = template["spec"].get("volumes") or []
    ours: Object = next((item for item in volumes if item.get("name") == VOLUME), {})
    return bool(ours.get("emptyDir"))


def _names_storage(template: Object) -> bool:
    resources = _worker(template).get("resources") or {}
    return any(_STORAGE in (resources.get(part) or {}) for part in ("requests", "limits"))


def _worker(template: Object) -> Object:
    containers: list[Object] = template["spec"]["containers"]
    return next(item for item in containers if item.get("name") == naming.CONTAINER)
