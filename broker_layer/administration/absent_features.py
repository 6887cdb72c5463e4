"""Handlers of requests for what Quire does not have: the answers are empty, and no error.

Admin tools ask for these things whenever they connect, and hide pages or log errors if an API is
missing. Leaves changes of them unserved: a client that tries one learns that it is not supported.

Source: KIP-546 (quotas).
"""

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ApiMessage, DescribeClientQuotasResponse
from broker_layer.request_context import RequestContext


async def describe_client_quotas(_: ApiMessage, __: RequestContext) -> ApiMessage:
    """Answer DescribeClientQuotas: clients have set none. Those of the brokers' options are not
    entities that clients can describe or alter.
    """
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=[])
