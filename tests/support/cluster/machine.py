"""What every node does inside its namespaces: own mounts, containerd with images, agents."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster import cgroups, components
from tests.support.cluster.config import CONTAINERD_SOCKET
from tests.support.cluster.layout import Machine, Settings
from tests.support.cluster.loading import Containerd, read_image
from tests.support.cluster.mounts import mount, unmount_all
from tests.support.cluster.running import ComponentProcesses

# unshare dies with its parent, the first process inside with unshare, all others with that.
ENTER = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--cgroup", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("catatonit", "--"),
)
# Where programs write whatever they are told; a node gets empty ones that go with it.
_OWN_FOLDERS = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")


def set_up_mounts() -> None:
    """A /sys of the node's own network, its control groups as the root, empty folders."""
    unmount_all(Path("/sys"))
    mount("sysfs", Path("/sys"))
    cgroups.mount_own_view()
    for folder in map(Path, _OWN_FOLDERS):
        folder.mkdir(parents=True, exist_ok=True)
        mount("tmpfs", folder)
    Path("/run/netns").mkdir()


def start_containerd(running: ComponentProcesses, settings: Settings, machine: Machine) -> None:
    """Start it, wait until it answers and give it the images."""
    component = components.container_runtime(settings, machine)
    running.add(component)
    running.start(component.name)
    containerd = Containerd(Path(settings.programs["ctr"]), Path(CONTAINERD_SOCKET))
    running.wait_for(component.name, containerd.answers)
    for name in settings.images:
        containerd.load(read_image(Path(settings.image_store), name))


def start_agents(running: ComponentProcesses, settings: Settings, machine: Machine) -> None:
    """Start kubelet and kube-proxy."""
    for component in components.agents(settings, machine):
        running.add(component)
        running.start(component.name)
