"""Settings with which Kafka's Python client proves an identity. Pure.

Leaves the file with the identity to `client_file`, and addresses to the callers.
"""

from typing import Any

from quire.identity.client_file import ClientFile
from quire.identity.errors import ClientFileError
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl_access import PLAIN_NEEDS_TLS


def kafka_settings(identity: ClientFile) -> dict[str, Any]:
    """Return arguments of `KafkaProducer` and `KafkaConsumer`. Raises SecurityError."""
    context, sasl = identity.context, identity.sasl
    settings: dict[str, Any] = {} if context is None else {"ssl_context": context}
    if sasl is None:
        return settings if context is None else {**settings, "security_protocol": "SSL"}
    if context is None and sasl.mechanism is Mechanism.PLAIN:
        raise ClientFileError(PLAIN_NEEDS_TLS)
    return {
        **settings,
        "security_protocol": "SASL_PLAINTEXT" if context is None else "SASL_SSL",
        "sasl_mechanism": sasl.mechanism.value,
        "sasl_plain_username": sasl.user,
        "sasl_plain_password": sasl.password,
    }
