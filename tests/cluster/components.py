"""The programs of the node and their command lines, in the order in which they start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster.layout import FIRST_SERVICE, NODE, NODE_NAME, S3_PORT, SERVICES, Layout

_ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True)
class Component:
    """One program; its output goes to ``NAME.log``."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def stores(layout: Layout, programs: Mapping[str, str], s3: Mapping[str, str]) -> list[Component]:
    """What needs nothing else: etcd, the API server (it waits for etcd), containerd and S3."""
    shim = str(Path(programs["containerd-shim-runc-v2"]).parent)
    path = f"{shim}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    objects = layout.state / "s3"
    (objects / s3["bucket"]).mkdir(parents=True)
    keys = {"ROOT_ACCESS_KEY": s3["access_key"], "ROOT_SECRET_KEY": s3["secret_key"]}
    address = ("--port", f"{NODE}:{S3_PORT}", "--region", s3["region"])
    return [
        Component("etcd", (programs["etcd"], *_etcd_options(layout))),
        Component("apiserver", (programs["kube-apiserver"], *_api_options(layout))),
        Component(
            "containerd",
            (programs["containerd"], "-c", str(layout.config / "containerd.toml")),
            {"PATH": path},
        ),
        Component("s3", (programs["versitygw"], *address, "posix", str(objects)), keys),
    ]


def controllers(layout: Layout, programs: Mapping[str, str]) -> list[Component]:
    """What needs the API server: controllers, kubelet, kube-proxy and DNS."""
    config = layout.config
    return [
        Component("controller-manager", _controller_manager(layout, programs)),
        Component(
            "scheduler",
            (
                programs["kube-scheduler"],
                f"--kubeconfig={config}/scheduler.kubeconfig",
                "--leader-elect=false",
            ),
        ),
        Component("coredns", (programs["coredns"], "-conf", f"{config}/Corefile")),
        Component(
            "proxy",
            (
                programs["kube-proxy"],
                f"--kubeconfig={config}/proxy.kubeconfig",
                "--proxy-mode=iptables",
                f"--hostname-override={NODE_NAME}",
                "--conntrack-max-per-core=0",
                "--iptables-min-sync-period=100ms",
            ),
        ),
        Component(
            "kubelet",
            (
                programs["kubelet"],
                f"--config={config}/kubelet.yaml",
                f"--kubeconfig={config}/kubelet.kubeconfig",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={NODE}",
                f"--root-dir={layout.state}/kubelet",
            ),
        ),
    ]


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


def _controller_manager(layout: Layout, programs: Mapping[str, str]) -> tuple[str, ...]:
    pki = layout.certificates
    return (
        programs["kube-controller-manager"],
        f"--kubeconfig={layout.config}/controller-manager.kubeconfig",
        f"--service-account-private-key-file={pki}/service-account.key",
        f"--root-ca-file={pki}/ca.crt",
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--leader-elect=false",
        f"--flex-volume-plugin-dir={layout.state}/volume-plugins",
        # Quicker than by default, so that tests wait for what they test and not for a timer.
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=20s",
    )


assert FIRST_SERVICE.rsplit(".", 1)[0] == SERVICES.rsplit(".", 1)[0]
