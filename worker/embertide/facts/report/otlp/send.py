"""Sending a run's spans over OTLP, where the environment names a collector.

The standard variables configure it: OTEL_EXPORTER_OTLP_ENDPOINT and the like. A trace is worth less
than the run that it tells of: whatever happens here is at most one warning, and takes a bounded
time. Only :func:`send` imports OpenTelemetry.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from embertide._version import __version__
from embertide.facts.report.numbers import without_secrets
from embertide.facts.report.otlp.tree import Node

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Span

MOST_SECONDS = 3.0
"""How long a collector may take to accept a trace; retries are within it."""
_BATCH = 512
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPEAKS = "http/protobuf"

_log = logging.getLogger("embertide.facts.report.otlp")


def asked() -> bool:
    """Whether the environment asks for traces: names an endpoint, and does not switch them off."""
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    none = os.environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    return bool(_first(_ENDPOINTS)) and not off and not none


def send(make: Callable[[], Node], key: str, *, whole: bool = True) -> None:
    """Send a run's spans, if the environment asks for it; returns within seconds, never raises.

    Args:
        make: the run's tree.
        key: of the run, from which its trace and the id of its root follow.
        whole: send the root as well; else only what is below it, as one of several pods does.
    """
    if not asked():
        return
    try:
        problem = _problem() or _deliver(make(), key, whole=whole)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        _log.warning("the trace of this run was not sent: %s", problem)


def _problem() -> str:
    """Why nothing can be sent from here, "" if it can."""
    protocol = _first(_PROTOCOLS)
    if protocol not in ("", _SPEAKS):
        return f"{_SPEAKS} is the only protocol; the environment asks for {protocol}"
    name = "opentelemetry.exporter.otlp.proto.http"
    try:
        missing = importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        missing = True
    return "OpenTelemetry is not installed: pip install 'embertide[otel]'" if missing else ""


def _deliver(root: Node, key: str, *, whole: bool) -> str:
    """Hand the spans to the collector; returns why it did not take them, "" if it did."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    spans = _spans(root, key, whole=whole)
    exporter = OTLPSpanExporter(timeout=MOST_SECONDS)
    # In a thread of its own: to look up a name, for instance, has no time limit.
    problems = [f"{_endpoint()} did not answer within {MOST_SECONDS:g} seconds"]

    def export() -> None:
        with _messages() as messages:
            refused = not _accepted(exporter.export, spans)
        last = messages[-1] if messages else "no reason is known"
        problems[:] = [f"{_endpoint()} did not take it: {last}"] if refused else []

    thread = threading.Thread(target=export, name="otlp", daemon=True)
    thread.start()
    thread.join(MOST_SECONDS + 0.5)
    return problems[0] if problems else ""


def _accepted(
    export: Callable[[Sequence[ReadableSpan]], object], spans: Sequence[ReadableSpan]
) -> bool:
    """Whether all batches were taken; the first one that is not ends it."""
    from opentelemetry.sdk.trace.export import SpanExportResult

    batches = [spans[at : at + _BATCH] for at in range(0, len(spans), _BATCH)]
    return all(export(batch) is SpanExportResult.SUCCESS for batch in batches)


@contextmanager
def _messages() -> Iterator[list[str]]:
    """What OpenTelemetry's own log says meanwhile, which goes nowhere else."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("opentelemetry")
    propagates, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.propagate = propagates


def _spans(root: Node, key: str, *, whole: bool) -> list[ReadableSpan]:
    """The tree as OpenTelemetry's spans, within the trace that TRACEPARENT names if it does."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    ended: list[ReadableSpan] = []

    class Keep(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.append(span)

    provider = _provider(key)
    provider.add_span_processor(Keep())
    tracer = provider.get_tracer("embertide", __version__)
    carrier = {name: os.environ.get(name.upper(), "") for name in ("traceparent", "tracestate")}
    outer = TraceContextTextMapPropagator().extract(carrier)
    if carrier["traceparent"] and not outer:
        _log.warning("TRACEPARENT is no W3C trace context; the run has a trace of its own")

    def begin(node: Node, context: Context) -> Span:
        span = tracer.start_span(
            node.name, context, attributes=node.attributes, start_time=_nanoseconds(node.start)
        )
        inner = set_span_in_context(span)
        for child in node.children:
            _end(begin(child, inner), child)
        return span

    top = begin(root, outer)
    if whole:
        _end(top, root)
    return ended


def _end(span: Span, node: Node) -> None:
    from opentelemetry.trace import Status, StatusCode

    if node.error:
        span.set_status(Status(StatusCode.ERROR, node.error))
    span.end(_nanoseconds(max(node.start, node.end)))


def _provider(key: str) -> TracerProvider:
    """A provider whose first span's id follows from a key, as does that of a trace of its own."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    digest = hashlib.sha256(key.encode()).digest()

    class Ids(RandomIdGenerator):
        root = True

        def generate_trace_id(self) -> int:
            return int.from_bytes(digest[:16], "big")

        def generate_span_id(self) -> int:
            if not self.root:
                return super().generate_span_id()
            self.root = False
            return int.from_bytes(digest[16:24], "big")

    ours = {"service.name": "embertide", "service.version": __version__}
    resource = Resource.create(ours).merge(OTELResourceDetector().detect())
    return TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)


def _endpoint() -> str:
    return without_secrets(_first(_ENDPOINTS))


def _first(names: Sequence[str]) -> str:
    """The first of these variables that is set, "" if none is."""
    return next((value for name in names if (value := os.environ.get(name, "").strip())), "")


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
