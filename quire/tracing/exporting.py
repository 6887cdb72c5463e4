"""Export of spans by OpenTelemetry's packages, as their standard variables say.

Leaves what is recorded to `spans`. The packages come with the extra `otel`, and are imported only
when tracing is turned on.

Format: OTLP over HTTP, to OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER and the rest are those of
OpenTelemetry's specification.

Invariants: export is in a thread of its own, with a queue of limited length, so a collector that is
away costs spans and nothing else; without OTEL_TRACES_SAMPLER one of a thousand traces is kept,
with its parts, and a trace that the caller samples is kept.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from quire.distribution import pip_install
from quire.tracing.spans import Attributes, Sink, SpanKind, send_to

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.trace import TracerProvider

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SAMPLER: Final = "OTEL_TRACES_SAMPLER"
DISABLED: Final = "OTEL_SDK_DISABLED"
SERVICE_NAME: Final = "OTEL_SERVICE_NAME"
KEPT_SHARE: Final = 0.001
NANOSECONDS: Final = 1_000_000_000


class TracingError(Exception):
    """Traces are wanted, and cannot be made."""


class _OpenTelemetrySink:
    """Sink of spans that a provider of OpenTelemetry makes."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import context, trace

        self._context = context
        self._trace = trace
        self._tracer = provider.get_tracer("quire")
        self._kinds = {kind: trace.SpanKind[kind.name] for kind in SpanKind}

    def current(self) -> object:
        return self._context.get_current()

    def record(
        self,
        name: str,
        kind: SpanKind,
        duration_s: float,
        attributes: Attributes,
        parent: object,
        error: str,
    ) -> None:
        now_ns = time.time_ns()
        within = parent if isinstance(parent, self._context.Context) else None
        made = self._tracer.start_span(
            name,
            within,
            kind=self._kinds[kind],
            attributes=attributes,
            start_time=now_ns - int(duration_s * NANOSECONDS),
        )
        if error:
            made.set_status(self._trace.StatusCode.ERROR, error)
        made.end(now_ns)

    @contextmanager
    def span(self, name: str, kind: SpanKind, attributes: Attributes) -> Iterator[None]:
        with self._tracer.start_as_current_span(
            name, kind=self._kinds[kind], attributes=attributes
        ):
            yield


def use_application() -> None:
    """Record the spans of this process with the provider that the application has set up
    (`opentelemetry.trace.set_tracer_provider`). Raises TracingError without OpenTelemetry's
    packages.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise _missing(error) from error
    send_to(_OpenTelemetrySink(trace.get_tracer_provider()))


def start_from(variables: Mapping[str, str], kind: str) -> Callable[[], None]:
    """Export the spans of a server process if its environment names an endpoint; return the call
    that sends what is left and turns it off.

    Raises TracingError if an endpoint is named and the packages are missing.
    """
    wanted = any(variables.get(name) for name in ENDPOINTS)
    if not wanted or variables.get(DISABLED, "").lower() == "true":
        return _nothing
    provider = _provider(variables, kind)
    sink: Sink = _OpenTelemetrySink(provider)
    send_to(sink)

    def stop() -> None:
        send_to(None)
        provider.shutdown()

    return stop


def _nothing() -> None:
    """Stop what was not started."""


def _provider(variables: Mapping[str, str], kind: str) -> "SdkTracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise _missing(error) from error
    named = {} if variables.get(SERVICE_NAME) else {"service.name": f"quire-{kind}"}
    sampler = None if variables.get(SAMPLER) else ParentBased(TraceIdRatioBased(KEPT_SHARE))
    provider = TracerProvider(
        resource=Resource.create(named), sampler=sampler, shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _missing(error: ImportError) -> TracingError:
    return TracingError(
        f"traces need packages that are not installed ({error.name}): {pip_install('otel')}, "
        f"or unset {' and '.join(ENDPOINTS)}"
    )
