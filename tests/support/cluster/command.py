"""The test cluster without pytest, for people: ``python -m tests.support.cluster COMMAND``.

build     build all programs that are not there yet
images    build the images that have changed
up        bring the cluster up with the operator on it, until Ctrl-C
packages  name the Debian packages that are needed
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from tests.support.cluster.fixture import KubernetesCluster
from tests.support.cluster.images import build_images
from tests.support.cluster.installation import NAMESPACE, RELEASE, install
from tests.support.cluster.programs import build_all
from tests.support.cluster.requirements import missing

_USE = """\
[cluster] up. In another terminal:

  export KUBECONFIG={cluster.kubeconfig}
  export PATH={programs}:$PATH
  kubectl get pods -A

S3 is at {s3.endpoint}, bucket {s3.bucket}, from here and from pods. Jobs in namespace {namespace}
find its keys in the Secret s3; a terminal needs:

  export AWS_ACCESS_KEY_ID={s3.access_key} AWS_DEFAULT_REGION={s3.region}
  export AWS_SECRET_ACCESS_KEY={s3.secret_key}

Ctrl-C ends it all, and removes the S3 objects."""


def up() -> None:
    """Start, say how to use it, wait."""
    cluster = KubernetesCluster(build_all(), build_images())
    try:
        cluster.start()
        print(f"[cluster] installing the operator into namespace {NAMESPACE}", flush=True)
        install(cluster, RELEASE)
        namespace = cluster.namespace("jobs")
        programs = cluster.programs["kubectl"].parent
        use = _USE.format(cluster=cluster, s3=cluster.s3, programs=programs, namespace=namespace)
        print(use, flush=True)
        signal.pause()
    finally:
        cluster.stop()


_COMMANDS: dict[str, Callable[[], object]] = {"build": build_all, "images": build_images, "up": up}


def main() -> int:
    """The exit status."""
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command not in _COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    reason = missing()
    if reason is not None:
        print(f"[cluster] {reason}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _COMMANDS[command]()
    except (RuntimeError, AssertionError) as error:
        print(f"[cluster] {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\n[cluster] ended")
    return 0
