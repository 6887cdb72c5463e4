"""A client of librdkafka that no broker serves, and the reasons."""

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from tests.until import WAIT_S

POLL_S: Final = 0.1


def refusal_of(settings: Mapping[str, object]) -> str:
    """Connect until each broker has refused the client; return the reasons that it reports.

    Raises AssertionError if one of them serves it.
    """
    seen: list[KafkaError] = []
    watched: dict[str, Any] = {**settings, "error_cb": seen.append, "log_level": 0}
    client = AdminClient(watched)
    deadline = time.monotonic() + WAIT_S
    while KafkaError._ALL_BROKERS_DOWN not in [kafka_error.code() for kafka_error in seen]:
        assert time.monotonic() < deadline, f"not refused: {seen}"
        client.poll(POLL_S)
    return " ".join(str(kafka_error) for kafka_error in seen)
