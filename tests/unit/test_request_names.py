"""Requests to Kubernetes as metrics name them: verb and resource."""

from __future__ import annotations

import pytest

from embertide_operator.api.routes import request_of


@pytest.mark.parametrize(
    ("method", "path", "content", "expected"),
    [
        ("GET", "/api/v1/namespaces/a/pods", "", ("list", "pods")),
        ("GET", "/apis/embertide.dev/v1alpha1/embeddingjobs", "", ("list", "embeddingjobs")),
        ("GET", "/api/v1/namespaces/a/configmaps/b", "", ("get", "configmaps")),
        ("POST", "/api/v1/namespaces/a/events", "", ("create", "events")),
        ("DELETE", "/api/v1/namespaces/a/pods/b", "", ("delete", "pods")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/statefulsets/b",
            "application/apply-patch+yaml",
            ("apply", "statefulsets"),
        ),
        (
            "PATCH",
            "/apis/embertide.dev/v1alpha1/namespaces/a/embeddingjobs/b/status",
            "application/merge-patch+json",
            ("patch", "embeddingjobs/status"),
        ),
    ],
)
def test_requests_are_named_as_kubernetes_does(
    method: str, path: str, content: str, expected: tuple[str, str]
) -> None:
    assert request_of(method, path, content) == expected
