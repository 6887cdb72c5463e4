"""Messages of quotas, their place in the registry of messages, and the pause in any answer.

Leaves encoding and the registry to `kafka.messages`.

Source: KIP-219, KIP-546.
"""

from typing import Final

from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.api_message import ApiMessage

from broker_layer.kafka.versions import ApiKey

__all__ = [
    "QUOTA_MESSAGES",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "note_throttle",
    "throttle_of",
]

QUOTA_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    ApiKey.ALTER_CLIENT_QUOTAS: (AlterClientQuotasRequest, AlterClientQuotasResponse),
}


def note_throttle(response: ApiMessage, throttle_s: float) -> None:
    """Write a pause because of a quota into an answer; of some APIs answers have no such field."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = int(throttle_s * 1000)  # type: ignore[attr-defined]  # it has it


def throttle_of(response: ApiMessage) -> float:
    """Return the pause in seconds that an answer contains."""
    return float(getattr(response, "throttle_time_ms", None) or 0) / 1000
