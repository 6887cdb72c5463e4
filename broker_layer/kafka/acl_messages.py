"""Messages of access control lists, and their place in the registry of messages.

Leaves encoding and the registry to `kafka.messages`.

Source: KIP-140, KIP-290 (pattern types).
"""

from typing import Final

from kafka.protocol.admin import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kafka.protocol.api_message import ApiMessage

from broker_layer.kafka.versions import ApiKey

__all__ = [
    "ACL_MESSAGES",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
]

ACL_MESSAGES: Final[dict[ApiKey, tuple[type[ApiMessage], type[ApiMessage]]]] = {
    ApiKey.DESCRIBE_ACLS: (DescribeAclsRequest, DescribeAclsResponse),
    ApiKey.CREATE_ACLS: (CreateAclsRequest, CreateAclsResponse),
    ApiKey.DELETE_ACLS: (DeleteAclsRequest, DeleteAclsResponse),
}
