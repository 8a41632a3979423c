"""The pods of a deleted job, where they are many, are deleted by one request.

The garbage collector deletes one after another, at 20 requests a second for all that the controller
manager does: a thousand pods take a minute, and longer where others wait too. The API server
deletes a collection in seconds.
"""

from __future__ import annotations

from embertide.spec.naming import LABEL_JOB_UID
from embertide_operator.api.cache import Cache
from embertide_operator.api.client import KubernetesApi
from embertide_operator.api.routes import Object
from embertide_operator.decide.decision import are_many
from embertide_operator.job.observe import label, owners
from embertide_operator.job.ownership import OPERATOR
from embertide_operator.runtime.work_queue import Key


def clear_deleted_job(api: KubernetesApi, cache: Cache, key: Key, identity: str) -> None:
    """Stop the pods that a deleted job has left, where they are many. Blocking.

    Pods that were to outlive their job (``kubectl delete --cascade=orphan``) stay: their
    StatefulSet no longer belongs to it.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    namespace = key[0]
    for uid, pods in _by_job(cache.pods(*key)).items():
        if not uid or not are_many(pods):
            continue
        statefulset = api.get("StatefulSet", *key)
        if statefulset is not None:
            if not _is_ours(statefulset, uid, identity):
                continue
            if statefulset["spec"]["replicas"] > 0:  # else it would create them again
                api.scale(statefulset, 0)
        api.delete_pods(namespace, uid)


def _by_job(pods: list[Object]) -> dict[str, list[Object]]:
    """Pods that have an owner, by the UID of their job."""
    pods_of: dict[str, list[Object]] = {}
    for pod in pods:
        if owners(pod):
            pods_of.setdefault(label(pod, LABEL_JOB_UID), []).append(pod)
    return pods_of


def _is_ours(statefulset: Object, uid: str, identity: str) -> bool:
    """Whether a StatefulSet goes with the deleted job, and this operator made it."""
    made_by = (statefulset["metadata"].get("annotations") or {}).get(OPERATOR, identity)
    return uid in owners(statefulset) and made_by == identity
