"""The node itself, inside namespaces of its own: sets them up, starts everything, takes orders.

Started by keeper.py. Orders come as lines of JSON on standard input and are answered on standard
output, one line each: ``{"do": "start" | "stop", "component": NAME}``. The end of standard input
ends this process, and with it, since the namespaces go, every process, mount and link.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cluster import cgroups, components, config, network
from cluster.components import Component
from cluster.layout import API, SETTINGS, Layout
from cluster.mounts import mount, unmount_all
from cluster.shell import run

_START_SECONDS = 90.0
# Where programs write whatever they are told; the node gets empty ones that go with it.
_OWN_FOLDERS = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")


class Node:
    """All components and their processes."""

    def __init__(self, layout: Layout, programs: Mapping[str, str]) -> None:
        self._layout, self._programs = layout, programs
        self._components: dict[str, Component] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_all(self, s3: Mapping[str, str]) -> None:
        """Bring the node up to where the API server, containerd and S3 answer."""
        for component in components.stores(self._layout, self._programs, s3):
            self.add(component)
        self.wait_for("containerd", self._containerd_answers)
        self._forget_containers()
        self.wait_for("apiserver", self._api_server_answers)
        for component in components.controllers(self._layout, self._programs):
            self.add(component)

    def add(self, component: Component) -> None:
        """Make a component known and start it."""
        self._components[component.name] = component
        self.start(component.name)

    def start(self, name: str) -> None:
        """Start a component; nothing happens where it runs."""
        running = self._processes.get(name)
        if running is not None and running.poll() is None:
            return
        component = self._components[name]
        with (self._layout.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                component.command,
                env=os.environ | component.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self, name: str) -> None:
        """Kill a component, as a crash does."""
        self._processes[name].kill()
        self._processes[name].wait()

    def wait_for(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until a component answers; RuntimeError where it ended or takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while not answers():
            code = self._processes[name].poll()
            if code is not None or time.monotonic() > deadline:
                how = "does not answer" if code is None else f"ended with status {code}"
                raise RuntimeError(f"{name} {how}, see {self._layout.logs / name}.log")
            time.sleep(0.05)

    def _api_server_answers(self) -> bool:
        authority = self._layout.certificates / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority))
        try:
            with urllib.request.urlopen(f"{API}/readyz", timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _containerd_answers(self) -> bool:
        return (
            subprocess.run([self._programs["ctr"], "version"], capture_output=True).returncode == 0
        )

    def _forget_containers(self) -> None:
        """Containers of the run before are only entries in containerd's kept database."""
        ctr = (self._programs["ctr"], "--namespace", "k8s.io")
        for kind in ("containers", "sandboxes"):
            names = [line.split()[0] for line in run(*ctr, kind, "ls").splitlines()[1:]]
            if names:
                run(*ctr, kind, "rm", *names)


def set_up(layout: Layout, host_namespace: int) -> None:
    """Mounts, network and files, before the first component starts."""
    unmount_all(Path("/sys"))
    mount("sysfs", Path("/sys"))
    cgroups.mount_own_view()
    for folder in map(Path, _OWN_FOLDERS):
        folder.mkdir(parents=True, exist_ok=True)
        mount("tmpfs", folder)
    Path("/run/netns").mkdir()
    network.set_up(host_namespace)
    config.write_all(layout)


def obey(node: Node, order: Mapping[str, str]) -> None:
    """Carry out one order."""
    act = {"start": node.start, "stop": node.stop}[order["do"]]
    act(order["component"])


def answer(act: Callable[[], None]) -> bool:
    """Do something and say on standard output how it went."""
    try:
        act()
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": f"{error}" or type(error).__name__}), flush=True)
        return False
    print("{}", flush=True)
    return True


def main() -> None:
    """``node_main.py DESCRIPTOR``: of this machine's network namespace."""
    settings = json.loads(os.environ.pop(SETTINGS))
    layout = Layout(Path(settings["root"]))
    node = Node(layout, settings["programs"])

    def start() -> None:
        set_up(layout, int(sys.argv[1]))
        node.start_all(settings["s3"])

    if answer(start):
        for line in sys.stdin:
            answer(partial(obey, node, json.loads(line)))


if __name__ == "__main__":
    main()
