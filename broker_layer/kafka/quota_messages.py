"""Messages of quotas, and their place in the registry of messages.

Leaves encoding and the registry to `kafka.messages`.

Source: KIP-546.
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
]

QUOTA_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    ApiKey.ALTER_CLIENT_QUOTAS: (AlterClientQuotasRequest, AlterClientQuotasResponse),
}
