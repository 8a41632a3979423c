"""The programs of the cluster and their command lines, in the order in which they start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster.layout import (
    FIRST,
    NODE,
    PODS,
    S3_PORT,
    SECOND,
    SERVICES,
    Layout,
    Machine,
    Settings,
)

_ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True)
class Component:
    """One program; its output goes to ``NAME.log``."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def stores(settings: Settings) -> list[Component]:
    """What needs nothing else: etcd, the API server (it waits for etcd) and S3."""
    layout, programs, s3 = settings.layout, settings.programs, settings.s3
    (layout.objects / s3["bucket"]).mkdir(parents=True)
    keys = {"ROOT_ACCESS_KEY": s3["access_key"], "ROOT_SECRET_KEY": s3["secret_key"]}
    address = ("--port", f"{NODE}:{S3_PORT}", "--region", s3["region"])
    return [
        Component("etcd", (programs["etcd"], *_etcd_options(layout))),
        Component("apiserver", (programs["kube-apiserver"], *_api_options(layout))),
        Component("s3", (programs["versitygw"], *address, "posix", str(layout.objects)), keys),
    ]


def controllers(settings: Settings) -> list[Component]:
    """What makes a cluster of it; needs the API server."""
    config, programs = settings.layout.config, settings.programs
    scheduler = (f"--kubeconfig={config}/scheduler.kubeconfig", "--leader-elect=false")
    options = _controller_manager_options(settings.layout)
    return [
        Component("controller-manager", (programs["kube-controller-manager"], *options)),
        Component("scheduler", (programs["kube-scheduler"], *scheduler)),
        Component("coredns", (programs["coredns"], "-conf", f"{config}/Corefile")),
    ]


def container_runtime(settings: Settings, machine: Machine) -> Component:
    """A node's containerd; it finds its shim by PATH."""
    shim = str(Path(settings.programs["containerd-shim-runc-v2"]).parent)
    path = f"{shim}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    file = settings.layout.config_of(machine) / "containerd.toml"
    command = (settings.programs["containerd"], "-c", str(file))
    return Component(_on(machine, "containerd"), command, {"PATH": path})


def agents(settings: Settings, machine: Machine) -> list[Component]:
    """A node's kubelet and kube-proxy; they need containerd and the API server."""
    layout, programs = settings.layout, settings.programs
    own = layout.config_of(machine)
    kubelet = (
        f"--config={own}/kubelet.yaml",
        f"--kubeconfig={own}/kubelet.kubeconfig",
        f"--hostname-override={machine.name}",
        f"--node-ip={machine.address}",
        f"--root-dir={layout.of(machine)}/kubelet",
    )
    proxy = (
        f"--kubeconfig={layout.config}/proxy.kubeconfig",
        "--proxy-mode=iptables",
        f"--cluster-cidr={PODS}",
        f"--hostname-override={machine.name}",
        "--conntrack-max-per-core=0",
        "--iptables-min-sync-period=100ms",
    )
    return [
        Component(_on(machine, "proxy"), (programs["kube-proxy"], *proxy)),
        Component(_on(machine, "kubelet"), (programs["kubelet"], *kubelet)),
    ]


def second_node(settings: Settings) -> Component:
    """The whole second node: killed like a component, it is gone like a machine."""
    command = (sys.executable, "-m", "tests.support.cluster.second_node")
    return Component(SECOND.name, command, settings.environment)


def _on(machine: Machine, name: str) -> str:
    return name if machine == FIRST else f"{machine.name}-{name}"


def _etcd_options(layout: Layout) -> list[str]:
    return [
        f"--data-dir={layout.state}/etcd",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
    ]


def _api_options(layout: Layout) -> list[str]:
    pki = layout.certificates
    return [
        f"--etcd-servers={_ETCD}",
        "--secure-port=6443",
        f"--advertise-address={NODE}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={pki}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-to-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        f"--audit-policy-file={layout.config}/audit.yaml",
        f"--audit-log-path={layout.logs}/audit.log",
        "--audit-log-mode=blocking",
    ]


def _controller_manager_options(layout: Layout) -> list[str]:
    pki = layout.certificates
    return [
        f"--kubeconfig={layout.config}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={pki}/service-account.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--leader-elect=false",
        f"--flex-volume-plugin-dir={layout.state}/volume-plugins",
        # Quicker than by default, so that tests wait for what they test and not for a timer.
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=12s",
    ]
