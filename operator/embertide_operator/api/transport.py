"""Requests to the API server: limited, counted, with an end, and answered by JSON or an error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTResponse

from embertide_operator.api.rate_limit import RateLimit
from embertide_operator.api.routes import Object, request_of

OnRequest = Callable[[str, str, str, float], None]
"""Called at every request with: verb, resource, HTTP status (or ``unanswered``), seconds."""

TIMEOUT_SECONDS = 15.0
_WATCH_MARGIN_SECONDS = 5.0
"""How long after its end, by the server's clock, a watch may be silent."""
_CONNECT_SECONDS = 5.0
UNLIMITED = RateLimit(1e9, 1)


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


class Transport:
    """Sends requests. Blocking and thread-safe.

    Args:
        on_request: may be called from several threads.
        limit: how often the API server may be asked.
        timeout_seconds: of one request, watches apart.

    Attributes:
        server_ahead: seconds that the API server's clock is ahead of this machine's, as of its last
            answer; within a second, 0.0 before the first.
    """

    def __init__(
        self, client: ApiClient, on_request: OnRequest, limit: RateLimit, timeout_seconds: float
    ) -> None:
        self._client, self._on_request, self._limit = client, on_request, limit
        self._timeout_seconds = timeout_seconds
        self.server_ahead = 0.0

    def call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """The object that is the answer."""
        answer = self.open(method, path, query, body, content_type)
        try:
            found = json.loads(answer.read())
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(503, f"the API server's answer broke off: {error}") from None
        except ValueError:
            raise ApiError(503, f"the API server answered {path} with what is no JSON") from None
        if not isinstance(found, dict):
            raise ApiError(503, f"the API server answered {path} with what is no object")
        return found

    def open(
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

    def pages(self, path: str, query: dict[str, str]) -> tuple[list[Object], str]:
        """(objects, resource version) of a whole list, which may come in pages."""
        items: list[Object] = []
        query = {**query, "limit": "200"}
        while True:
            page = self.call("GET", path, query)
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

    def watch(self, path: str, query: dict[str, str], seconds: int) -> Iterator[tuple[str, Object]]:
        """(type, object) of the events of a watch that lasts for so many seconds."""
        answer = self.open("GET", path, query, quiet=float(seconds))
        try:
            for line in _lines(answer):
                yield _watch_event(line)
        finally:
            answer.response.close()

    def _note_time(self, date: str | None) -> None:
        """Compare the server's clock with ours; the header has whole seconds."""
        if date:
            server = parsedate_to_datetime(date).timestamp() + 0.5
            self.server_ahead = server - time.time()


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
        raise ApiError(503, "a watch sent what is no event") from None
    return kind, found


def _api_message(body: bytes | str | None, default: str) -> str:
    """The message of an error response; ``default`` where it has none."""
    try:
        return str(json.loads(body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return default
