"""The only caller of the Kubernetes API: a few verbs on JSON objects.

Objects are the dictionaries of the API. Typed clients for five kinds would need more memory than
the operator itself, and server-side apply must send only the fields that the operator sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from kubernetes.client import ApiClient

from embertide.spec.naming import FIELD_MANAGER, GROUP, LABEL_JOB, LABEL_JOB_UID
from embertide_operator.api.rate_limit import RateLimit
from embertide_operator.api.routes import ROUTES, Object, kind_of, path_of
from embertide_operator.api.transport import (
    TIMEOUT_SECONDS,
    UNLIMITED,
    ApiError,
    OnRequest,
    Transport,
)

SCALED = f"{GROUP}/scaled-at"
"""On the StatefulSet: when it was last scaled, RFC 3339; a change that others see each time."""


class KubernetesApi:
    """Reads and writes objects. Blocking and thread-safe.

    Every method raises :class:`ApiError` unless it says otherwise.

    Args:
        on_request: may be called from several threads.
        limit: how often the API server may be asked.
        timeout_seconds: of one request, watches apart.
    """

    def __init__(
        self,
        client: ApiClient,
        on_request: OnRequest = lambda *_: None,
        limit: RateLimit = UNLIMITED,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._transport = Transport(client, on_request, limit, timeout_seconds)

    @property
    def server_ahead(self) -> float:
        """Seconds that the API server's clock is ahead of ours; 0.0 before its first answer."""
        return self._transport.server_ahead

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None where it does not exist."""
        try:
            return self._transport.call("GET", path_of(kind, namespace, name))
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def pods(self, namespace: str, job: str) -> list[Object]:
        """A job's pods: workers of every attempt, and the planner."""
        return self.read_all("Pod", namespace, labels=f"{LABEL_JOB}={job}")[0]

    def events_about(self, namespace: str, uid: str, reason: str) -> list[Object]:
        """The Events about an object with this reason."""
        selector = f"involvedObject.uid={uid},reason={reason}"
        return self._transport.pages(path_of("Event", namespace), {"fieldSelector": selector})[0]

    def read_all(self, kind: str, namespace: str, *, labels: str = "") -> tuple[list[Object], str]:
        """(objects, resource version of the whole list); namespace "" lists all namespaces."""
        items, version = self._transport.pages(path_of(kind, namespace), _selected(labels))
        # Items of a list do not say what they are.
        api_version = ROUTES[kind][0].removeprefix("/apis/").removeprefix("/api/")
        name = kind.partition(".")[0]
        return [{"apiVersion": api_version, "kind": name, **item} for item in items], version

    def of_name(self, kind: str, name: str) -> list[Object]:
        """The objects of this name in all namespaces; a right to the name alone is enough."""
        selector = {"fieldSelector": f"metadata.name={name}"}
        return self._transport.pages(path_of(kind, ""), selector)[0]

    def watch(
        self, kind: str, namespace: str, version: str, seconds: int, *, labels: str = ""
    ) -> Iterator[tuple[str, Object]]:
        """(type, object) of what changes after a version, for so many seconds.

        Types are ADDED, MODIFIED and DELETED, and BOOKMARK of an object with nothing but a version.
        A connection that is dead is noticed shortly after that time.

        Raises:
            ApiError: also for a stream that breaks off or says what is no event; 410 where the
                version is too old.
        """
        query = {
            **_selected(labels),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        yield from self._transport.watch(path_of(kind, namespace), query, seconds)

    def events_about_pod(self, namespace: str, name: str) -> list[Object]:
        """The Events about a pod and those of its name before it."""
        selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
        return self._transport.pages(path_of("Event", namespace), {"fieldSelector": selector})[0]

    def apply(self, manifest: Object) -> Object:
        """Server-side apply under the operator's field manager; idempotent."""
        meta = manifest["metadata"]
        return self._transport.call(
            "PATCH",
            path_of(kind_of(manifest), meta["namespace"], meta["name"]),
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            manifest,
            "application/apply-patch+yaml",
        )

    def create(self, manifest: Object) -> Object:
        """Create an object; a conflict where one of this name exists."""
        path = path_of(manifest["kind"], manifest["metadata"]["namespace"])
        query = {"fieldManager": FIELD_MANAGER}
        return self._transport.call("POST", path, query, manifest)

    def create_once(self, manifest: Object) -> Object:
        """Create an object, unless its owner has it already; the one that exists now.

        Raises:
            ApiError: also where an object of this name has another owner; not as a conflict, which
                would be tried again.
        """
        try:
            return self.create(manifest)
        except ApiError as error:
            if not error.conflict:
                raise
            kind, meta = manifest["kind"], manifest["metadata"]
            selector = {"fieldSelector": f"metadata.name={meta['name']}"}
            (owner,) = meta["ownerReferences"]
            for found in self._transport.pages(path_of(kind, meta["namespace"]), selector)[0]:
                others = found["metadata"].get("ownerReferences") or []
                if any(other["uid"] == owner["uid"] for other in others):
                    return {"apiVersion": manifest["apiVersion"], "kind": kind, **found}
                text = f"{kind}/{meta['name']} exists and is not owned by this job"
                raise ApiError(422, f"{text}; rename one of them") from None
            raise  # it is gone again: tried again as every conflict

    def replace(self, manifest: Object) -> Object:
        """Replace an object; a conflict if it changed since it was read."""
        meta = manifest["metadata"]
        path = path_of(manifest["kind"], meta["namespace"], meta["name"])
        query = {"fieldManager": FIELD_MANAGER}
        return self._transport.call("PUT", path, query, manifest)

    def scale(self, statefulset: Object, replicas: int) -> Object:
        """Set a StatefulSet's replicas, and the annotation that says when."""
        meta = statefulset["metadata"]
        annotations = {SCALED: datetime.now(UTC).isoformat()}
        return self._transport.call(
            "PATCH",
            path_of("StatefulSet", meta["namespace"], meta["name"]),
            {"fieldManager": FIELD_MANAGER},
            {
                "metadata": {"uid": meta["uid"], "annotations": annotations},
                "spec": {"replicas": replicas},
            },
            "application/merge-patch+json",
        )

    def set_ports(self, service: Object) -> None:
        """Give a Service that exists these ports and no others."""
        meta = service["metadata"]
        self._transport.call(
            "PATCH",
            path_of("Service", meta["namespace"], meta["name"]),
            {"fieldManager": FIELD_MANAGER},
            {"spec": {"ports": service["spec"]["ports"]}},
            "application/merge-patch+json",
        )

    def write_status(self, job: Object, status: Object) -> Object:
        """Replace an EmbeddingJob's status; a conflict if the job changed since it was read."""
        meta = job["metadata"]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "status": merge_patch(job.get("status") or {}, status),
        }
        path = path_of("EmbeddingJob", meta["namespace"], meta["name"]) + "/status"
        return self._transport.call(
            "PATCH", path, {"fieldManager": FIELD_MANAGER}, body, "application/merge-patch+json"
        )

    def write_schedule_status(self, schedule: Object, status: Object) -> Object:
        """Replace an EmbeddingSchedule's status."""
        meta = schedule["metadata"]
        body = {"status": merge_patch(schedule.get("status") or {}, status)}
        path = path_of("EmbeddingSchedule", meta["namespace"], meta["name"]) + "/status"
        return self._transport.call(
            "PATCH", path, {"fieldManager": FIELD_MANAGER}, body, "application/merge-patch+json"
        )

    def patch_data(self, namespace: str, name: str, data: dict[str, str | None]) -> Object:
        """Set keys of a ConfigMap that exists, or remove them where the value is None."""
        return self._transport.call(
            "PATCH",
            path_of("ConfigMap", namespace, name),
            {"fieldManager": FIELD_MANAGER},
            {"data": data},
            "application/merge-patch+json",
        )

    def create_event(self, event: Object) -> None:
        """Create an Event."""
        self._transport.call("POST", path_of("Event", event["metadata"]["namespace"]), {}, event)

    def delete(self, kind: str, namespace: str, name: str, *, uid: str, force: bool) -> None:
        """Delete the object with this UID, if it still exists."""
        options: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if force:
            options["gracePeriodSeconds"] = 0
        try:
            self._transport.call("DELETE", path_of(kind, namespace, name), {}, options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def delete_pods(self, namespace: str, uid: str) -> None:
        """Delete all pods of the job with this UID, with their own grace periods."""
        query = {"labelSelector": f"{LABEL_JOB_UID}={uid}"}
        options: Object = {"propagationPolicy": "Background"}
        self._transport.call("DELETE", path_of("Pod", namespace), query, options)


def merge_patch(old: Object, new: Object) -> Object:
    """The JSON merge patch (RFC 7386) that turns ``old`` into ``new``."""
    patch: Object = dict.fromkeys(set(old) - set(new))
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = merge_patch(old[key], value)
        elif key not in old or old[key] != value:
            patch[key] = value
    return {key: value for key, value in patch.items() if value != {} or key not in old}


def _selected(labels: str) -> dict[str, str]:
    return {"labelSelector": labels} if labels else {}
