"""The only caller of the Kubernetes API: a few verbs on JSON objects.

Objects are the dictionaries of the API. Typed clients for five kinds would need more memory than
the operator itself, and server-side apply must send only the fields that the operator sets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTResponse

from embertide.spec.naming import API_VERSION_NAME, FIELD_MANAGER, GROUP, LABEL_JOB, PLURAL
from embertide_operator.rate_limit import RateLimit

Object = dict[str, Any]
OnRequest = Callable[[str, str, str, float], None]
"""Told of every request: verb, resource, HTTP status (or ``unanswered``), seconds."""

JOBS = (f"/apis/{GROUP}/{API_VERSION_NAME}", PLURAL)
_ROUTES = {
    "EmbeddingJob": JOBS,
    "ConfigMap": ("/api/v1", "configmaps"),
    "Service": ("/api/v1", "services"),
    "Pod": ("/api/v1", "pods"),
    "Event": ("/api/v1", "events"),
    "StatefulSet": ("/apis/apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies"),
    "PodGroup.scheduling.volcano.sh": ("/apis/scheduling.volcano.sh/v1beta1", "podgroups"),
    "PodGroup.scheduling.x-k8s.io": ("/apis/scheduling.x-k8s.io/v1alpha1", "podgroups"),
    "Lease": ("/apis/coordination.k8s.io/v1", "leases"),
}
SCALED = f"{GROUP}/scaled-at"
"""On the StatefulSet: when it was last scaled, RFC 3339; a change that others see each time."""
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TIMEOUT_SECONDS = 15.0
_WATCH_MARGIN_SECONDS = 5.0
"""How long after its end, by the server's clock, a watch may be silent."""
_CONNECT_SECONDS = 5.0
_UNLIMITED = RateLimit(1e9, 1)


class ApiError(Exception):
    """The API server rejected a request or did not answer; ``code`` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)

    @property
    def conflict(self) -> bool:
        """Whether the object was changed since it was read."""
        return self.code == 409

    @property
    def namespace_is_terminating(self) -> bool:
        """Whether an object cannot be created because its namespace is being deleted."""
        return self.code == 403 and "because it is being terminated" in str(self)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later.

        500 is not retryable: it is the answer to an apply that has a field of the wrong type.
        """
        return self.code == 429 or self.code > 500


class KubernetesApi:
    """Reads and writes objects. Blocking and thread-safe.

    Every method raises :class:`ApiError` unless it says otherwise.

    Args:
        on_request: may be called from several threads.
        limit: how often the API server may be asked.
        timeout_seconds: of one request, watches apart.

    Attributes:
        server_ahead: seconds that the API server's clock is ahead of this machine's, as of its last
            answer; within a second, 0.0 before the first.
    """

    def __init__(
        self,
        client: ApiClient,
        on_request: OnRequest = lambda *_: None,
        limit: RateLimit = _UNLIMITED,
        timeout_seconds: float = _TIMEOUT_SECONDS,
    ) -> None:
        self._client, self._on_request, self._limit = client, on_request, limit
        self._timeout_seconds = timeout_seconds
        self.server_ahead = 0.0

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """One object; None where it does not exist."""
        try:
            return self._call("GET", _path(kind, namespace, name))
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
        return self._pages(_path("Event", namespace), {"fieldSelector": selector})[0]

    def read_all(self, kind: str, namespace: str, *, labels: str = "") -> tuple[list[Object], str]:
        """(objects, resource version of the whole list); namespace "" lists all namespaces."""
        items, version = self._pages(_path(kind, namespace), _selected(labels))
        # Items of a list do not say what they are.
        api_version = _ROUTES[kind][0].removeprefix("/apis/").removeprefix("/api/")
        name = kind.partition(".")[0]
        return [{"apiVersion": api_version, "kind": name, **item} for item in items], version

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
        answer = self._open("GET", _path(kind, namespace), query, quiet=float(seconds))
        try:
            for line in _lines(answer):
                yield _watch_event(line)
        finally:
            answer.response.close()

    def events_about_pod(self, namespace: str, name: str) -> list[Object]:
        """The Events about a pod and those of its name before it."""
        selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
        return self._pages(_path("Event", namespace), {"fieldSelector": selector})[0]

    def apply(self, manifest: Object) -> Object:
        """Server-side apply under the operator's field manager; idempotent."""
        meta = manifest["metadata"]
        return self._call(
            "PATCH",
            _path(kind_of(manifest), meta["namespace"], meta["name"]),
            {"fieldManager": FIELD_MANAGER, "force": "true"},
            manifest,
            "application/apply-patch+yaml",
        )

    def create(self, manifest: Object) -> Object:
        """Create an object; a conflict where one of this name exists."""
        path = _path(manifest["kind"], manifest["metadata"]["namespace"])
        query = {"fieldManager": FIELD_MANAGER}
        return self._call("POST", path, query, manifest)

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
            for found in self._pages(_path(kind, meta["namespace"]), selector)[0]:
                others = found["metadata"].get("ownerReferences") or []
                if any(other["uid"] == owner["uid"] for other in others):
                    return {"apiVersion": manifest["apiVersion"], "kind": kind, **found}
                text = f"{kind}/{meta['name']} exists and is not owned by this job"
                raise ApiError(422, f"{text}; rename one of them") from None
            raise  # it is gone again: tried again as every conflict

    def replace(self, manifest: Object) -> Object:
        """Replace an object; a conflict if it changed since it was read."""
        meta = manifest["metadata"]
        path = _path(manifest["kind"], meta["namespace"], meta["name"])
        query = {"fieldManager": FIELD_MANAGER}
        return self._call("PUT", path, query, manifest)

    def scale(self, statefulset: Object, replicas: int) -> Object:
        """Set a StatefulSet's replicas, and the annotation that says when."""
        meta = statefulset["metadata"]
        annotations = {SCALED: datetime.now(UTC).isoformat()}
        return self._call(
            "PATCH",
            _path("StatefulSet", meta["namespace"], meta["name"]),
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
        self._call(
            "PATCH",
            _path("Service", meta["namespace"], meta["name"]),
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
        path = _path("EmbeddingJob", meta["namespace"], meta["name"]) + "/status"
        return self._call(
            "PATCH", path, {"fieldManager": FIELD_MANAGER}, body, "application/merge-patch+json"
        )

    def patch_data(self, namespace: str, name: str, data: dict[str, str | None]) -> Object:
        """Set keys of a ConfigMap that exists, or remove them where the value is None."""
        return self._call(
            "PATCH",
            _path("ConfigMap", namespace, name),
            {"fieldManager": FIELD_MANAGER},
            {"data": data},
            "application/merge-patch+json",
        )

    def create_event(self, event: Object) -> None:
        """Create an Event."""
        self._call("POST", _path("Event", event["metadata"]["namespace"]), {}, event)

    def delete(self, kind: str, namespace: str, name: str, *, uid: str, force: bool) -> None:
        """Delete the object with this UID, if it still exists."""
        options: Object = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if force:
            options["gracePeriodSeconds"] = 0
        try:
            self._call("DELETE", _path(kind, namespace, name), {}, options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _pages(self, path: str, query: dict[str, str]) -> tuple[list[Object], str]:
        items: list[Object] = []
        query = {**query, "limit": "200"}
        while True:
            page = self._call("GET", path, query)
            try:
                items += page["items"]
                rest = page["metadata"].get("continue")
                if not rest:
                    return items, page["metadata"]["resourceVersion"]
            except (KeyError, TypeError, AttributeError):
                raise ApiError(
                    503, f"the API server answered {path} with what is no list"
                ) from None
            query["continue"] = rest

    def _note_time(self, date: str | None) -> None:
        """Compare the server's clock with ours; the header has whole seconds."""
        if date:
            server = parsedate_to_datetime(date).timestamp() + 0.5
            self.server_ahead = server - time.time()

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        answer = self._open(method, path, query, body, content_type)
        try:
            found = json.loads(answer.read())
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(503, f"the API server's answer broke off: {error}") from None
        except ValueError:
            raise ApiError(503, f"the API server answered {path} with what is no JSON") from None
        if not isinstance(found, dict):
            raise ApiError(503, f"the API server answered {path} with what is no object")
        return found

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        quiet: float | None = None,
    ) -> RESTResponse:
        """The answer, of which nothing is read yet; ``quiet`` makes it a watch."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        verb, resource = request_of(method, path, content_type)
        timeout: Any = self._timeout_seconds
        if quiet is not None:
            verb, timeout = "watch", (_CONNECT_SECONDS, quiet + _WATCH_MARGIN_SECONDS)
        self._limit.wait()
        code, started = "unanswered", time.monotonic()
        prepared = self._client.param_serialize(
            method,
            path + ("?" + urlencode(query) if query else ""),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*prepared, _request_timeout=timeout)
            code = str(answer.status)
            if answer.status >= 400:
                data = answer.read()
                raise ApiError(answer.status, _api_message(data, answer.reason or ""))
        except ApiException as error:
            code = str(error.status or code)
            raise ApiError(
                error.status or 500, _api_message(error.body, str(error.reason))
            ) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(503, f"the API server did not respond: {error}") from None
        finally:
            self._on_request(verb, resource, code, time.monotonic() - started)
        self._note_time(answer.getheader("Date"))
        return answer


def merge_patch(old: Object, new: Object) -> Object:
    """The JSON merge patch (RFC 7386) that turns ``old`` into ``new``."""
    patch: Object = dict.fromkeys(set(old) - set(new))
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(key), dict):
            patch[key] = merge_patch(old[key], value)
        elif key not in old or old[key] != value:
            patch[key] = value
    return {key: value for key, value in patch.items() if value != {} or key not in old}


def kind_of(item: Object) -> str:
    """The kind of an object; with its API group where several groups have that kind."""
    kind, group = str(item["kind"]), str(item["apiVersion"]).partition("/")[0]
    return kind if kind in _ROUTES else f"{kind}.{group}"


def _selected(labels: str) -> dict[str, str]:
    return {"labelSelector": labels} if labels else {}


def _lines(answer: RESTResponse) -> Iterator[bytes]:
    """The lines of a stream, as they come."""
    rest = b""
    try:
        for part in answer.response.stream(amt=None):
            *whole, rest = (rest + part).split(b"\n")
            yield from filter(None, whole)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ApiError(503, f"a watch broke off: {error}") from None
    if rest:
        raise ApiError(503, "a watch broke off within an event")


def _watch_event(line: bytes) -> tuple[str, Object]:
    """(type, object) of a line of a watch; raises ApiError for an error and for anything else."""
    try:
        event = json.loads(line)
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(int(found.get("code") or 500), str(found.get("message") or "an error"))
        found["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ApiError(503, "a watch said what is no event") from None
    return kind, found


def _path(kind: str, namespace: str, name: str = "") -> str:
    prefix, plural = _ROUTES[kind]
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{middle}/{plural}" + (f"/{name}" if name else "")


def request_of(method: str, path: str, content_type: str) -> tuple[str, str]:
    """The verb and the resource of a request, as Kubernetes' own metrics name them."""
    # /apis/GROUP/VERSION or /api/v1, namespaces/NAME for one namespace, PLURAL, NAME, subresource.
    _, root, *rest = path.split("/")
    rest = rest[2:] if root == "apis" else rest[1:]
    if rest[0] == "namespaces":
        rest = rest[2:]
    resource = "/".join((rest[0], *rest[2:]))
    if method == "GET":
        return ("get" if rest[1:] else "list"), resource
    if content_type.startswith("application/apply"):
        return "apply", resource
    return _VERBS[method], resource


def _api_message(body: bytes | str | None, default: str) -> str:
    """The message of an error response; ``default`` where it has none."""
    try:
        return str(json.loads(body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return default
