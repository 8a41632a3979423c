"""The first node, inside namespaces of its own: sets them up, starts everything, takes orders.

Started by keeper.py. Orders come as lines of JSON on standard input and are answered on standard
output, one line each: ``{"do": "start" | "stop", "component": NAME}``. Between orders, components
that ended by themselves are started again. The end of standard input ends this process, and with
it, since the namespaces go, every process, mount and link.
"""

from __future__ import annotations

import json
import selectors
import ssl
import sys
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial

from tests.support.cluster import components, config, machine, network
from tests.support.cluster.layout import API, FIRST, Layout, Settings
from tests.support.cluster.running import ComponentProcesses

_LOOK_SECONDS = 1.0
"""How often it looks whether a component has ended."""


def start(settings: Settings, running: ComponentProcesses, here: int) -> None:
    """Bring the node up to where the API server and S3 answer and containerd has the images."""
    machine.set_up_mounts()
    network.set_up_first(here)
    config.write_all(settings.layout)
    for component in components.stores(settings):
        running.add(component)
        running.start(component.name)
    machine.start_containerd(running, settings, FIRST)
    running.wait_for("apiserver", partial(api_server_answers, settings.layout))
    for component in components.controllers(settings):
        running.add(component)
        running.start(component.name)
    machine.start_agents(running, settings, FIRST)
    running.add(components.second_node(settings))


def api_server_answers(layout: Layout) -> bool:
    """Whether it is ready."""
    context = ssl.create_default_context(cafile=str(layout.certificates / "ca.crt"))
    try:
        with urllib.request.urlopen(f"{API}/readyz", timeout=2, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def obey(running: ComponentProcesses, order: Mapping[str, str]) -> None:
    """Carry out one order."""
    act = {"start": running.start, "stop": running.stop}[order["do"]]
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
    settings = Settings.of_this_process()
    running = ComponentProcesses(settings.layout.logs)
    if answer(partial(start, settings, running, int(sys.argv[1]))):
        with selectors.DefaultSelector() as selector:
            selector.register(sys.stdin, selectors.EVENT_READ)
            while True:
                if not selector.select(_LOOK_SECONDS):
                    running.revive()
                elif line := sys.stdin.readline():
                    answer(partial(obey, running, json.loads(line)))
                else:
                    return


if __name__ == "__main__":
    main()
