"""What a job's pods and other objects mean to the API server, the scheduler and the kubelet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from embertide.spec.grid import GridShape
from embertide.spec.manifest import EmbeddingJob
from embertide_operator.decide.validate import read_job
from embertide_operator.pods.children import children, planner
from embertide_operator.pods.worker_pods import Attempt
from tests.support.chart_sources import pod_groups
from tests.support.cluster.jobs import RESTRICTED, Inputs, Jobs, find_condition, workers
from tests.support.operator_world import SETTINGS, UID, raw_job

pytestmark = [pytest.mark.cluster, pytest.mark.needs("chart-sources")]

CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
GPU_NODE = "nvidia.com/gpu.present"


def test_the_api_server_takes_every_object(jobs: Jobs) -> None:
    """A claim in the place of the scratch volume among them: two sources it would refuse."""
    cluster = jobs.cluster
    cluster.kubectl("apply", "--server-side", *(f"--filename={path}" for path in pod_groups()))
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": CLAIM}}
    template = {"spec": {"volumes": [scratch]}}
    raw = raw_job(storage={"credentialsSecret": "s3"})
    raw["spec"]["workers"]["podTemplate"] = template
    raw["metadata"]["namespace"] = jobs.namespace
    job = read_job(raw, SETTINGS)
    assert isinstance(job, EmbeddingJob), job
    attempt = Attempt(uid=UID, number=1, version="v", earlier=(), grid=GridShape.of(2, 1))
    for groups in ("volcano", "coscheduling"):
        settings = replace(SETTINGS, network_policy=True, http_peers=PEERS, pod_groups=groups)
        built = [*children(job, attempt, settings), planner(job, attempt, settings)]
        # As JSON: kubectl reads hashes such as 12345e67 as numbers in YAML, which Python does not.
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": built})
        said = jobs.kubectl("create", "--dry-run=server", "-o", "yaml", "-f", "-", input=given)
        held = {item["kind"]: item for item in yaml.safe_load_all(said)}
        assert held["NetworkPolicy"]["spec"] == chosen(built, "NetworkPolicy")["spec"]
        assert held["PodGroup"]["spec"]["minMember"] == 2
        assert held["Service"]["spec"]["ipFamilyPolicy"] == "PreferDualStack"


PEERS: tuple[dict[str, Any], ...] = ({"podSelector": {"matchLabels": {"app": "prometheus"}}},)


def chosen(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def test_workers_are_guarded_while_they_run_and_nothing_is_afterwards(
    big: Inputs, jobs: Jobs
) -> None:
    """The disruption budget, and the keys: in files of the container and in no environment."""
    jobs.apply(big.job("guarded", f"{jobs.root}/out", workers=workers(2, 1)))
    with jobs.held("guarded", 1, "ingest"):
        jobs.cluster.wait_for(lambda: budget(jobs)["currentHealthy"] == 2, 30, "it counts both")
        refused = evict(jobs, "guarded-0")
        assert "violate the pod's disruption budget" in refused
        text = jobs.kubectl("exec", "guarded-0", "--", "python", "-c", SHOW)
        seen = json.loads(text)
        assert "EMBERTIDE_CREDENTIALS_FOLDER" in seen["environment"]
        assert "AWS_SECRET_ACCESS_KEY" not in seen["environment"]
        assert seen["key"] == jobs.cluster.s3.access_key
        policy = jobs.cluster.get("-n", jobs.namespace, "networkpolicy", "guarded")
        peers = policy["spec"]["ingress"][1]["from"]
        operator = jobs.cluster.get("-n", "embertide", "pods", "-l", LABEL)["items"][0]
        labels = peers[0]["podSelector"]["matchLabels"]
        assert labels.items() <= operator["metadata"]["labels"].items()
    jobs.complete("guarded")
    objects = ("get", "sts,svc,cm,pdb,netpol", "-l", "embertide.dev/job", "-o", "name")
    jobs.cluster.wait_for(lambda: not jobs.kubectl(*objects), 30, "nothing but the job is left")
    assert jobs.status("guarded")["report"]


SHOW = (
    "import json, pathlib; print(json.dumps({"
    "'environment': pathlib.Path('/proc/self/environ').read_text(),"
    "'key': pathlib.Path('/etc/embertide-credentials/AWS_ACCESS_KEY_ID').read_text()}))"
)
LABEL = "app.kubernetes.io/component=operator"


def budget(jobs: Jobs) -> dict[str, Any]:
    """The status of the job's PodDisruptionBudget, as far as the controller has one."""
    found = jobs.cluster.get("-n", jobs.namespace, "pdb", "guarded")
    status: dict[str, Any] = {"currentHealthy": -1, **found.get("status", {})}
    return status


def evict(jobs: Jobs, pod: str) -> str:
    """Why the API server does not evict a pod."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}/eviction"
    command = ("create", "--raw", path, "-f", "-")
    result = jobs.cluster.try_kubectl(*command, input=json.dumps(body))
    assert result.returncode != 0, "it was evicted"
    return result.stderr


def test_what_keeps_pods_from_starting_is_told_by_name(tiny: Inputs, jobs: Jobs) -> None:
    """An init container that fails, a planner that finds GPU nodes only; and a job of another
    controller, which is left alone meanwhile."""
    image = jobs.cluster.worker_image
    fails = {"command": ["python", "-c", "raise SystemExit(3)"], "securityContext": RESTRICTED}
    template = {"spec": {"initContainers": [{"name": "fetch", "image": image, **fails}]}}
    other = tiny.job("other", f"{jobs.root}/o", managedBy="kueue.x-k8s.io/multikueue")
    broken = tiny.job("broken", f"{jobs.root}/b", workers=workers(podTemplate=template))
    gpu = {"grid": "auto", "device": "cuda", "image": image}
    node = jobs.cluster.get("nodes")["items"][0]["metadata"]["name"]
    jobs.kubectl("label", "node", node, f"{GPU_NODE}=true")
    try:
        jobs.apply(other, broken, tiny.job("gpu", f"{jobs.root}/g", workers=gpu))
        status = jobs.await_("broken", lambda s: "'fetch'" in message(s))
        assert "worker 0: init container 'fetch' exited with code 3" in message(status)
        jobs.await_("gpu", lambda s: "the planner is not scheduled" in message(s))
    finally:
        jobs.kubectl("label", "node", node, f"{GPU_NODE}-")
    jobs.await_("gpu", lambda s: s.get("plan"))
    assert jobs.status("other") == {}
    assert jobs.reasons("other") == []


def message(status: dict[str, Any]) -> str:
    return str(find_condition(status, "WorkersReady").get("message", ""))


def test_a_gpu_pod_compiles_what_triton_launches_kernels_with(tiny: Inputs, jobs: Jobs) -> None:
    """Triton's extension for the GPU's driver, which it compiles before the first kernel runs.

    The compiler and Python's headers are those of the image with CUDA, which alone has Triton; the
    user, the read-only root and the one writable volume are those of the pod the operator makes.
    """
    gpu = workers(device="cuda", image=jobs.cluster.worker_image)
    jobs.apply(tiny.job("gpu", f"{jobs.root}/out", workers=gpu))
    sets = f"/apis/apps/v1/namespaces/{jobs.namespace}/statefulsets"
    (found,) = jobs.cluster.wait_for(lambda: jobs.cluster.read(sets)["items"], 60, "its pods")
    said = json.loads(output_of(jobs, instead_of_work(found["spec"]["template"], COMPILE)))
    assert (said["user"], said["root is read-only"]) == (65532, True)
    assert said["module"].startswith("/scratch/.triton/cache/"), "kept where a restart finds it"
    assert said["bytes for two arguments"] == 2


# Nodes without a GPU have no driver, whose functions are therefore looked up only when called.
COMPILE = """
import json, os, sys
from triton.backends.nvidia import driver
from triton.runtime.build import compile_module_from_file

sys.setdlopenflags(os.RTLD_LAZY)
source = os.path.join(driver.dirname, "driver.c")
module = compile_module_from_file(source, "cuda_utils", include_dirs=driver.include_dirs)
print(json.dumps({
    "user": os.getuid(),
    "root is read-only": bool(os.statvfs("/").f_flag & os.ST_RDONLY),
    "module": module.__file__,
    "bytes for two arguments": len(module.build_signature_metadata(iter(["i32", "*fp32"]))),
}))
"""


def instead_of_work(template: dict[str, Any], code: str) -> dict[str, Any]:
    """A pod like a worker's that runs some Python once, on a node with no GPU."""
    (container,) = template["spec"]["containers"]
    container["command"], container["args"] = ["python", "-c"], [code]
    del container["resources"]["limits"]["nvidia.com/gpu"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        del container[probe]
    spec = template["spec"] | {"restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "instead"}, "spec": spec}


def output_of(jobs: Jobs, pod: dict[str, Any]) -> str:
    """What a pod has said, once it has ended well."""
    jobs.kubectl("create", "-f", "-", input=json.dumps(pod))
    path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod['metadata']['name']}"

    def phase() -> str:
        found: str = jobs.cluster.read(path)["status"].get("phase", "")
        return found if found in ("Succeeded", "Failed") else ""

    ended = jobs.cluster.wait_for(phase, what="the pod ends")
    output = jobs.kubectl("logs", pod["metadata"]["name"])
    assert ended == "Succeeded", output
    return output
