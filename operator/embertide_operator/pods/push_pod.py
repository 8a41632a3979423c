"""The pod that pushes a version into an index, once it is published: like a planner's.

It has the credentials of the store and the secret of the index, and nothing of Kubernetes.
"""

from __future__ import annotations

from embertide.spec import naming
from embertide.spec.manifest import EmbeddingJob
from embertide.spec.push import SECRET_KEYS, Push
from embertide_operator.api.routes import Object
from embertide_operator.config.settings import Settings
from embertide_operator.pods.worker_pods import Attempt, container_of, once_template


def pusher_template(
    job: EmbeddingJob, attempt: Attempt, settings: Settings, version: str
) -> Object:
    """The pod template of a push: as the planner's, with what ``spec.push`` says of it.

    Args:
        version: that is pushed if it is current; "" for whichever is.
    """
    push = job.spec.push
    assert push is not None
    container = container_of(job, settings, "push")
    container["image"] = push.image or container["image"]
    container["resources"] = push.resources or settings.planner_resources
    container["env"] += [{"name": naming.ENV_VERSION, "value": version}, *_push_secrets(push)]
    template = once_template(job, attempt, settings, container, naming.ROLE_PUSHER)
    template["spec"]["activeDeadlineSeconds"] = push.active_deadline_seconds
    return template


def _push_secrets(push: Push) -> list[Object]:
    """The secrets of the index, each by its name, so that nothing else of a Secret is seen."""
    if push.credentials_secret is None:
        return []
    return [
        {
            "name": key,
            "valueFrom": {"secretKeyRef": {"name": push.credentials_secret, "key": key}},
        }
        for key in SECRET_KEYS[push.kind]
    ]
