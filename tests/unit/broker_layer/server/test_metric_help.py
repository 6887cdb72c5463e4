"""Every counter of a broker has a metric with a help text."""

from dataclasses import fields

from broker_layer.server.admin import LABELLED, LATENCIES, PARTITION, PLAIN
from broker_layer.server.server_limits import BrokerCounters


def test_every_field_has_a_help_text_and_every_help_text_a_field() -> None:
    assert [*PLAIN, *LABELLED, *LATENCIES] == [field.name for field in fields(BrokerCounters)]
    plain = [described.text for described in PLAIN.values()]
    labelled = [row.text for row in LABELLED.values()]
    for text in (*plain, *labelled, *LATENCIES.values(), *PARTITION.values()):
        assert text.endswith(".")
