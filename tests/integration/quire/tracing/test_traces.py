"""Traces of a real cluster's servers, and of a client in an application with OpenTelemetry."""

from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ledger_client import LedgerClient, LedgerFencedError, Quorum
from quire.local_cluster import LocalCluster
from quire.tracing.exporting import use_application
from quire.tracing.spans import BATCH_BYTES, FIRST_ENTRY, LAST_ENTRY, LEDGER, send_to
from tests.support.tracing.collector import attributes_of, running_collector
from tests.until import until

pytestmark = pytest.mark.long


async def test_each_server_sends_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
        async with LocalCluster(3, tmp_path, broker=1) as cluster:
            address = cluster.brokers[0].address
            producer = KafkaProducer(bootstrap_servers=address)
            producer.send("orders", b"one").get(timeout=60)
            producer.close()
            consumer = KafkaConsumer(
                "orders", bootstrap_servers=address, auto_offset_reset="earliest"
            )
            assert next(consumer).value == b"one"
            consumer.close()
            wanted = [
                ("quire-bookie", "bookie.commit"),
                ("quire-broker", "Produce"),
                ("quire-broker", "Fetch"),
                ("quire-broker", "ledger.append"),
            ]
            await until(lambda: collector.has(*wanted))
        (produced,) = [attributes_of(span) for span in collector.spans["quire-broker", "Produce"]][
            :1
        ]
        assert produced["messaging.destination.name"] == "orders"


async def test_a_client_is_a_part_of_the_trace_of_its_application(tmp_path: Path) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    use_application()
    try:
        async with LocalCluster(3, tmp_path) as cluster:
            await _append_and_take_over(cluster.metadata_uri)
    finally:
        send_to(None)
    spans = exporter.get_finished_spans()
    append, *refused = [span for span in spans if span.name == "ledger.append"]
    (order,) = [span for span in spans if span.name == "order"]
    (recovery,) = [span for span in spans if span.name == "ledger.recover"]
    assert append.parent is not None
    assert append.parent.span_id == order.context.span_id
    attributes = dict(append.attributes or {})
    assert (attributes[FIRST_ENTRY], attributes[LAST_ENTRY], attributes[BATCH_BYTES]) == (0, 1, 6)
    # A writer that has read of the recovery sends nothing.
    assert not any(span.status.is_ok for span in refused)
    assert dict(recovery.attributes or {})[LEDGER] == attributes[LEDGER]


async def _append_and_take_over(uri: str) -> None:
    tracer = trace.get_tracer("application")
    async with LedgerClient(uri) as client, LedgerClient(uri) as successor:
        ledger = await client.create_ledger(Quorum(3, 3, 2))
        with tracer.start_as_current_span("order"):
            await ledger.append_many([b"one", b"two"])
        await successor.recover_ledger(ledger.id)
        with pytest.raises(LedgerFencedError):
            await ledger.append(b"three")
