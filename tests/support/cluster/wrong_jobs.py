"""Jobs that are wrong in one way each, and what the user has to see of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.cluster.jobs import Inputs, Jobs, Manifest, workers

WRONG_KEY = "wrong-key"
"""Name of a Secret whose secret key is not the one of the access key in it."""


@dataclass(frozen=True)
class Place:
    """What the jobs of a trial have around them.

    Attributes:
        jobs: their namespace.
        narrow: a namespace whose quota has room for one pod.
        tiny: what good jobs read.
        other: inputs of another width.
        long: inputs that take some seconds.
    """

    jobs: Jobs
    narrow: Jobs
    tiny: Inputs
    other: Inputs
    long: Inputs

    @property
    def text(self) -> str:
        """A folder with an object that is not parquet."""
        return f"{self.jobs.root}/text/"

    def prepare(self) -> None:
        """Create what wrong jobs name: a Secret, a quota, an object."""
        keys = self.jobs.cluster.s3.environment | {"AWS_SECRET_ACCESS_KEY": "x" * 40}
        literals = (f"--from-literal={key}={value}" for key, value in keys.items())
        self.jobs.kubectl("create", "secret", "generic", WRONG_KEY, *literals)
        self.narrow.kubectl("create", "quota", "narrow", "--hard=pods=1")
        self.tiny.storage.write(f"{self.text}part-0.parquet", b"src,dst\n0,1\n" * 100)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A way in which a job is wrong.

    Attributes:
        reason: what ``kubectl get`` shows; "" where the API server refuses the job.
        words: in the message beside it, as a regular expression.
        change: makes a good manifest wrong.
        rejected: the job is not started, and may still be corrected.
        deleted: the user deletes it as soon as it runs.
        narrow: it belongs into the namespace with the narrow quota.
        long: it has the inputs that take some seconds.
    """

    reason: str
    words: str
    change: Callable[[Manifest, Place], None]
    rejected: bool = False
    deleted: bool = False
    narrow: bool = False
    long: bool = False

    def manifest(self, name: str, place: Place) -> Manifest:
        """A job that is wrong in this way."""
        inputs = place.long if self.long else place.tiny
        job = inputs.job(name, f"{place.jobs.root}/{name}", backoffLimit=0)
        self.change(job["spec"], place)
        return job


def _workers(graph: int = 1, **fields: object) -> Callable[[Manifest, Place], None]:
    """Set ``spec.workers``."""
    return lambda spec, _: spec.update(workers=workers(graph, 1, **fields))


def _pod(**spec: object) -> Callable[[Manifest, Place], None]:
    """Set fields of the pods."""
    return _workers(podTemplate={"spec": spec})


def _field(path: str, value: object) -> Callable[[Manifest, Place], None]:
    """Set one field of ``spec``, such as ``input.edges.0.uri``."""

    def change(spec: Manifest, _: Place) -> None:
        *parents, last = path.split(".")
        item = spec
        for name in parents:
            item = item[int(name)] if isinstance(item, list) else item[name]
        item[last] = value

    return change


def _unavailable(spec: Manifest, _: Place) -> None:
    spec["storage"] |= {"endpointUrl": "http://127.0.0.1:9", "maxAttempts": 1}


def _text(spec: Manifest, place: Place) -> None:
    spec["input"]["edges"][0]["uri"] = place.text


def _other_model(spec: Manifest, place: Place) -> None:
    spec["model"] = place.other.manifest["spec"]["model"]


def _late(spec: Manifest, place: Place) -> None:
    spec["input"]["edges"][0]["uri"] = f"{place.jobs.root}/never/"
    spec["input"]["edges"][0]["ready"] = {"object": "_SUCCESS", "within": "5s"}


def _no_room(spec: Manifest, _: Place) -> None:
    spec["preRunningDeadlineSeconds"] = 5
    spec["workers"] = workers(resources={"requests": {"cpu": "999"}, "limits": {"memory": "1Gi"}})


def _late_pods(spec: Manifest, _: Place) -> None:
    spec["preRunningDeadlineSeconds"] = 5
    spec["workers"] = workers(podTemplate={"spec": {"nodeSelector": {"no-such-node": "true"}}})


_LITTLE = {"requests": {"cpu": "50m", "memory": "40Mi"}, "limits": {"memory": "40Mi"}}

WRONG: dict[str, Wrong] = {
    "unknown-field": Wrong(
        reason="", words='unknown field "spec.inptu"', change=_field("inptu", {})
    ),
    "no-url": Wrong(reason="", words="s3://", change=_field("model.uri", "http://shop/model")),
    "too-large": Wrong(
        reason="TooManyWorkers",
        words="asks for 9 workers; a job has at most 8",
        change=_workers(9),
        rejected=True,
    ),
    "bad-size": Wrong(
        reason="InvalidSpec",
        words="1Gigs",
        change=_workers(resources={"limits": {"memory": "1Gigs"}}),
        rejected=True,
    ),
    "no-template": Wrong(
        reason="InvalidSpec",
        words="nodeSelector: must be a mapping",
        change=_pod(nodeSelector="big"),
        rejected=True,
    ),
    "template": Wrong(
        reason="ChildRefused", words="nodeSelectr", change=_pod(nodeSelectr={"a": "b"})
    ),
    "account": Wrong(
        reason="PodsRefused",
        words='serviceaccount "nope" not found.*it was not mended within 10 s',
        change=_workers(serviceAccountName="nope"),
    ),
    "priority": Wrong(
        reason="PodsRefused",
        words="no PriorityClass with name nope",
        change=_pod(priorityClassName="nope"),
    ),
    "runtime": Wrong(
        reason="PodsRefused", words="RuntimeClass .*nope", change=_pod(runtimeClassName="nope")
    ),
    "security": Wrong(
        reason="PodsRefused", words="violates PodSecurity", change=_pod(hostNetwork=True)
    ),
    "quota": Wrong(
        reason="PodsRefused",
        words="1 of 2 pods are created.*exceeded quota: narrow.*not mended within 10 s",
        change=_workers(2),
        narrow=True,
    ),
    "no-secret": Wrong(
        reason="FailedMount",
        words='secret "nowhere" not found',
        change=_field("storage.credentialsSecret", "nowhere"),
    ),
    "image": Wrong(
        reason="ErrImageNeverPull",
        words="localhost/nowhere:1",
        change=_workers(image="localhost/nowhere:1"),
    ),
    "no-worker": Wrong(
        reason="WorkerFailed",
        words="worker 0 exited with code 2",
        change=lambda spec, place: spec.update(
            workers=workers(image=place.jobs.cluster.operator_image)
        ),
    ),
    "no-room": Wrong(
        reason="PreRunningDeadlineExceeded", words="Insufficient cpu", change=_no_room
    ),
    "no-node": Wrong(
        reason="PreRunningDeadlineExceeded", words="didn't match Pod's node", change=_late_pods
    ),
    "memory": Wrong(reason="OutOfMemory", words="40Mi", change=_workers(resources=_LITTLE)),
    "bucket": Wrong(
        reason="ObjectMissing",
        words="no bucket",
        change=_field("input.edges.0.uri", "s3://no-such-bucket/edges/"),
    ),
    "key": Wrong(
        reason="AccessDenied",
        words="the secret key is wrong",
        change=_field("storage.credentialsSecret", WRONG_KEY),
    ),
    "away": Wrong(reason="StoreUnavailable", words="127.0.0.1:9", change=_unavailable),
    "text": Wrong(reason="Input", words="not readable as parquet", change=_text),
    "column": Wrong(
        reason="Input",
        words="nowhere",
        change=_field("input.nodes.0.features.vectorColumn", "nowhere"),
    ),
    "dangling": Wrong(reason="Input", words="32", change=_field("input.nodes.0.count", 32)),
    "too-few": Wrong(
        reason="InputTooSmall", words="minEdges", change=_field("input.edges.0.minEdges", 10**6)
    ),
    "late": Wrong(reason="InputsNotReady", words="_SUCCESS is not there", change=_late),
    "model": Wrong(reason="Model", words="16", change=_other_model),
    "output": Wrong(
        reason="Output", words="file:///", change=_field("output.uri", "file:///embeddings")
    ),
    "deadline": Wrong(
        reason="DeadlineExceeded",
        words="activeDeadlineSeconds, 1 s",
        change=_field("activeDeadlineSeconds", 1),
        long=True,
    ),
    "deleted": Wrong(reason="", words="", change=_workers(2), deleted=True, long=True),
}
