"""The only module of the worker's package that talks to the Kubernetes API."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from urllib3.exceptions import HTTPError

from embertide.errors import ClusterError, ManifestError
from embertide.spec import naming

Object = dict[str, Any]

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 15.0
_SUBMIT_RIGHTS = "docs/schedules.md lists the rights that submit needs"
_LOG_RIGHTS = (
    "embertide logs needs those to get embeddingjobs, list pods and get pods/log, which the role"
    " view has"
)


class NameTaken(Exception):
    """A job of that name exists."""


class NotThere(Exception):
    """There is no object of that name."""


class Cluster:
    """EmbeddingJobs of one namespace and their pods. Every method raises ClusterError."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client, self.namespace = client, namespace
        place = f"namespaces/{namespace}"
        self._jobs = f"/apis/{naming.GROUP}/{naming.API_VERSION_NAME}/{place}/{naming.PLURAL}"
        self._kubernetes_jobs = f"/apis/batch/v1/{place}/jobs"
        self._pods = f"/api/v1/{place}/pods"

    @classmethod
    def connect(cls, namespace: str | None) -> Self:
        """By the kubeconfig and its current context, or by the pod's service account.

        Args:
            namespace: None for that of the context or of the pod.
        """
        settings = Configuration()
        # Else the client repeats a refused connection at once, and logs each time.
        settings.retries = False
        file = os.environ.get("KUBECONFIG")
        in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and not file
        try:
            if in_pod:
                config.load_incluster_config(settings)
            else:
                config.load_kube_config(file, client_configuration=settings)
            found = namespace or (_of_pod() if in_pod else _of_context(file))
            return cls(ApiClient(settings), found)
        except (config.ConfigException, OSError) as error:
            message = (
                f"no Kubernetes cluster: {error}; set KUBECONFIG, or run in a pod with the token "
                "of a service account"
            )
            raise ClusterError(message) from None

    def get(self, name: str) -> Object | None:
        """An EmbeddingJob, None where it does not exist."""
        try:
            return self._call("GET", f"{self._jobs}/{name}", f"read EmbeddingJob {name}")
        except NotThere:
            return None

    def jobs_of(self, schedule: str) -> list[Object]:
        """The EmbeddingJobs of a schedule, in the order of their names."""
        query = urlencode({"labelSelector": f"{naming.LABEL_SCHEDULE}={schedule}"})
        items: list[Object] = self._call("GET", f"{self._jobs}?{query}", "list EmbeddingJobs")[
            "items"
        ]
        return items

    def create(self, job: Object) -> Object:
        """Create an EmbeddingJob.

        Raises:
            NameTaken: one of that name exists.
            ManifestError: the API server finds it invalid.
        """
        name = job["metadata"]["name"]
        return self._call("POST", self._jobs, f"create EmbeddingJob {name}", job)

    def delete(self, name: str, uid: str) -> None:
        """Delete the EmbeddingJob with this UID, if it still exists."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            self._call("DELETE", f"{self._jobs}/{name}", f"delete EmbeddingJob {name}", options)
        except (NotThere, NameTaken):  # gone, or another one by now
            return

    def kubernetes_job(self, name: str) -> Object:
        """A Job of the batch API."""
        try:
            return self._call("GET", f"{self._kubernetes_jobs}/{name}", f"read Job {name}")
        except NotThere as error:
            raise ClusterError(str(error)) from None

    def pods(self, job: str) -> list[Object]:
        """The pods of an EmbeddingJob, by name."""
        query = urlencode({"labelSelector": f"{naming.LABEL_JOB}={job}"})
        data = self._ask("GET", f"{self._pods}?{query}", "list pods", rights=_LOG_RIGHTS)
        items: list[Object] = _parsed(data).get("items") or []
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    def pod_log(self, pod: str, tail: int) -> str:
        """The last lines of the log of a pod of an EmbeddingJob.

        Raises:
            NotThere: the pod is gone.
        """
        query = urlencode({"container": naming.CONTAINER, "tailLines": tail})
        path = f"{self._pods}/{pod}/log?{query}"
        data = self._ask("GET", path, f"read the log of pod {pod}", rights=_LOG_RIGHTS)
        return data.decode(errors="replace")

    def _call(self, method: str, path: str, action: str, body: Object | None = None) -> Object:
        """One request for an object; ``action`` says in messages what it was for."""
        return _parsed(self._ask(method, path, action, body))

    def _ask(
        self,
        method: str,
        path: str,
        action: str,
        body: Object | None = None,
        rights: str = _SUBMIT_RIGHTS,
    ) -> bytes:
        """The body of the answer to one request.

        Raises:
            Exception: what :func:`refusal` makes of an answer that is none of 2xx.
        """
        # What the client's own calls are named differs between its releases; this does not.
        settings = self._client.configuration
        headers = self._client.default_headers | {"Accept": "application/json, */*"}
        headers |= {"Content-Type": "application/json"}
        plain = self._client.sanitize_for_serialization(body)  # Dates become text.
        headers |= {one["key"]: one["value"] for one in settings.auth_settings().values()}
        action = f"{action} in namespace {self.namespace}"
        try:
            answer = self._client.rest_client.pool_manager.request(
                method,
                settings.host + path,
                body=None if body is None else json.dumps(plain),
                headers=headers,
                timeout=_TIMEOUT_SECONDS,
                retries=False,
            )
            status, data = answer.status, answer.data
        except (HTTPError, OSError) as error:
            raise ClusterError(f"cannot {action}: no answer: {error}") from None
        if status >= 400:
            raise refusal(status, _parsed(data), f"cannot {action}", rights)
        return bytes(data)


def refusal(
    status: int, answer: Mapping[str, Any], cannot: str, rights: str = _SUBMIT_RIGHTS
) -> Exception:
    """The error for an answer that is none of 2xx.

    Args:
        answer: the API's Status object, {} where the body was none.
        cannot: what was asked for, such as ``cannot create EmbeddingJob x in namespace y``.
        rights: which ones it takes, or where that is written.
    """
    reason = str(answer.get("message") or f"HTTP {status}").strip()
    message = f"{cannot}: {reason}"
    details = answer.get("details") or {}
    if status == 404 and details.get("name"):
        return ClusterError(message) if details.get("kind") == "namespaces" else NotThere(message)
    if status == 404:
        return ClusterError(f"{message}; this cluster has no EmbeddingJobs: install the chart")
    if status == 409:
        return NameTaken(message)
    if status in (400, 422):
        return ManifestError([("", reason)], "the API server says that the job")
    if status == 403:
        return ClusterError(f"{message}; {rights}")
    if status == 401:
        return ClusterError(f"{message}; the credentials are not valid (any more)")
    return ClusterError(message)


def _parsed(data: bytes) -> Object:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _of_pod() -> str:
    return (_ACCOUNT / "namespace").read_text().strip()


def _of_context(file: str | None) -> str:
    _, current = config.list_kube_config_contexts(file)
    return str(current["context"].get("namespace") or "default")
