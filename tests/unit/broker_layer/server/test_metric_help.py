"""Every counter of a broker has a metric with a help text."""

from dataclasses import fields

from broker_layer.server.counters import BrokerCounters
from broker_layer.server.metric_help import LABELLED, LATENCIES, PARTITION, PLAIN


def test_every_field_has_a_help_text_and_every_help_text_a_field() -> None:
    assert [*PLAIN, *LABELLED, *LATENCIES] == [each.name for each in fields(BrokerCounters)]
    plain = [described.text for described in PLAIN.values()]
    for text in (*plain, *LABELLED.values(), *LATENCIES.values(), *PARTITION.values()):
        assert text.endswith(".")
