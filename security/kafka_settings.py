"""Settings with which Kafka's Python client proves an identity. Pure.

Leaves the file with the identity to `client_file`, and addresses to the callers.
"""

from typing import Any

from security.client_file import ClientFile


def kafka_settings(identity: ClientFile) -> dict[str, Any]:
    """Return arguments of `KafkaProducer` and `KafkaConsumer`. Raises SecurityError."""
    context = identity.context
    if context is None:
        return {}
    return {"security_protocol": "SSL", "ssl_context": context}
