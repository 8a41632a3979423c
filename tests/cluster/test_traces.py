"""Spans of a job's pods, as a real OpenTelemetry Collector beside the cluster received them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster.jobs import Inputs, Jobs, Manifest, workers
from tests.support.cluster.layout import HOST
from tests.support.monitoring.collector import Collector, collector

pytestmark = [pytest.mark.cluster, pytest.mark.needs("otelcol")]

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def traced(receiver: Collector, graph: int) -> Manifest:
    """``spec.workers`` whose container names the collector."""
    env = [{"name": ENDPOINT, "value": receiver.endpoint}]
    template = {"spec": {"containers": [{"name": "worker", "env": env}]}}
    return workers(graph, 1, podTemplate=template)


def test_a_collector_receives_the_spans_of_each_job(
    tiny: Inputs, jobs: Jobs, tmp_path: Path
) -> None:
    with collector(tmp_path, HOST) as receiver:
        wrong = tiny.job("wrong", f"{jobs.root}/wrong", workers=traced(receiver, 1))
        wrong["spec"]["input"]["nodes"][0]["features"]["vectorColumn"] = "nowhere"
        jobs.apply(tiny.job("good", f"{jobs.root}/good", workers=traced(receiver, 2)), wrong)
        version = jobs.complete("good")["output"]["version"]
        jobs.fail("wrong")
        roots = {root.attributes["embertide.job"]: root for root in receiver.until(2)}
        text = receiver.text
    good, failed = roots["good"], roots["wrong"]
    assert good.attributes["embertide.version"] == version
    assert good.attributes["embertide.attempt"] == 1
    names = [span.name for span in good.children]
    assert sorted(names) == ["start", "worker 0", "worker 1"]
    for rank in (0, 1):
        stages = [span.name for span in good.named(f"worker {rank}").children]
        assert stages == ["features", "ingest", "csr", "infer", "publish"]
    assert not good.failed
    assert failed.failed
    assert failed.attributes["error.type"] == "Input"
    for secret in (jobs.cluster.s3.secret_key, jobs.cluster.s3.access_key):
        assert secret not in text
