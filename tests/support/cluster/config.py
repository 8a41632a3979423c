"""Configuration files of the components. All are written as JSON, which YAML readers take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.cluster.layout import API, FIRST, FIRST_SERVICE, NODE, SECOND, Layout, Machine
from tests.support.cluster.pki import Authority, Subject

PAUSE_IMAGE = "localhost/embertide-pause:1"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"  # ctr's default; /run is the node's own


def write_all(layout: Layout) -> None:
    """Certificates and configuration of one run; nothing of an earlier run may be there."""
    authority = Authority(layout.certificates)
    _issue_certificates(authority)
    _write(
        layout.config,
        {
            "audit.yaml": json.dumps(_AUDIT, indent=1),
            "Corefile": _corefile(layout),
            "resolv.conf": "nameserver 127.0.0.1\n",
        },
    )
    for name in ("admin", "controller-manager", "scheduler", "proxy", "coredns"):
        text = authority.kubeconfig(name, API)
        (layout.config / f"{name}.kubeconfig").write_text(text)
    for machine in (FIRST, SECOND):
        network = _pod_network(machine, layout.of(machine) / "cni")
        _write(
            layout.config_of(machine),
            {
                "kubelet.kubeconfig": authority.kubeconfig(machine.name, API),
                "kubelet.yaml": json.dumps(_kubelet(layout, machine), indent=1),
                "containerd.toml": _containerd(layout, machine),
                "cni/10-pods.conflist": json.dumps(network, indent=1),
            },
        )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _issue_certificates(authority: Authority) -> None:
    addresses = (NODE, "127.0.0.1", FIRST_SERVICE)
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    api = (*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in services))
    for name, subject in {
        "apiserver": Subject("kube-apiserver", names=api),
        "apiserver-to-kubelet": Subject("kube-apiserver-kubelet-client", "system:masters"),
        "admin": Subject("admin", "system:masters"),
        "controller-manager": Subject("system:kube-controller-manager"),
        "scheduler": Subject("system:kube-scheduler"),
        "proxy": Subject("system:kube-proxy"),
        "coredns": Subject("coredns", "system:masters"),
    }.items():
        authority.issue(name, subject)
    for machine in (FIRST, SECOND):
        names = (f"IP:{machine.address}", f"DNS:{machine.name}")
        subject = Subject(f"system:node:{machine.name}", "system:nodes", names)
        authority.issue(machine.name, subject)
    authority.issue_token_key("service-account")


_AUDIT: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def _kubelet(layout: Layout, machine: Machine) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.certificates / f"{machine.name}.crt"),
        "tlsPrivateKeyFile": str(layout.certificates / f"{machine.name}.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [NODE],
        "clusterDomain": "cluster.local",
        "resolvConf": str(layout.config / "resolv.conf"),
        "podLogsDir": str(layout.of(machine) / "pods"),
        "volumePluginDir": str(layout.of(machine) / "volume-plugins"),
        # Images are kept however full the disk is, and pods stay until it really is.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
        "podPidsLimit": 4096,
        "maxPods": 200,
        # Quicker than by default, so that tests wait for what they test and not for a timer.
        "syncFrequency": "1s",
        "nodeStatusUpdateFrequency": "3s",
        "nodeLeaseDurationSeconds": 12,
        "volumeStatsAggPeriod": "10s",
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }


def _pod_network(machine: Machine, folder: Path) -> dict[str, Any]:
    """Every pod on a link of its own, as routed networks do: replies always pass the node.

    On a bridge they would not, and connections through Services to the same node would break
    where the kernel has no bridge netfilter.
    """
    addresses = {
        "type": "host-local",
        "dataDir": str(folder),
        "ranges": [[{"subnet": machine.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _corefile(layout: Layout) -> str:
    return f"""\
.:53 {{
  bind {NODE}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local {{
    kubeconfig {layout.config / "coredns.kubeconfig"}
    pods insecure
    ttl 1
  }}
}}
"""


def _containerd(layout: Layout, machine: Machine) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE every sandbox would fail otherwise.
    return f"""\
version = 3
root = "{layout.of(machine) / "containerd"}"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins.'io.containerd.internal.v1.opt']
  path = "{layout.of(machine) / "opt"}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
    conf_dir = "{layout.config_of(machine) / "cni"}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        SystemdCgroup = false
"""
