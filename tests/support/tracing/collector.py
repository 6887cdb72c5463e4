"""A collector of traces: takes OTLP over HTTP, and keeps the spans that it gets."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override  # `typing` has it from 3.12 on


@dataclass(slots=True)
class Collector:
    """Spans by service and name, in the order of their arrival."""

    endpoint: str = ""
    spans: dict[tuple[str, str], list[Any]] = field(default_factory=lambda: defaultdict(list))

    def has(self, *wanted: tuple[str, str]) -> bool:
        """Return whether there is a span of each service and name."""
        return all(self.spans.get(each) for each in wanted)

    def take(self, body: bytes) -> None:
        """Keep the spans of one request."""
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = attributes_of(resource.resource)["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.spans[str(service), span.name].append(span)


def attributes_of(message: Any) -> dict[str, str | int]:
    """Return the attributes of a resource or a span."""
    return {
        attribute.key: attribute.value.int_value
        if attribute.value.HasField("int_value")
        else attribute.value.string_value
        for attribute in message.attributes
    }


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Listen on a loopback address until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        @override
        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
