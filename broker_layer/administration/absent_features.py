"""Handlers of requests for what Quire does not have: the answers are empty, and no error.

Admin tools ask for these things whenever they connect, and hide pages or log errors if an API is
missing. Leaves changes of them unserved: a client that tries one learns that it is not supported.

Source: KIP-546 (quotas), KIP-554 (users).
"""

from collections import Counter

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker_layer.request_context import RequestContext

_User = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


async def describe_client_quotas(_: ApiMessage, __: RequestContext) -> ApiMessage:
    """Answer DescribeClientQuotas: clients have set none. Those of the brokers' options are not
    entities that clients can describe or alter.
    """
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=[])


async def describe_user_scram_credentials(request: ApiMessage, _: RequestContext) -> ApiMessage:
    """Answer DescribeUserScramCredentials: there are no users."""
    assert isinstance(request, DescribeUserScramCredentialsRequest), "the dispatcher selects by API"
    results = []
    for name, count in Counter(each.name for each in request.users or ()).items():
        code, text = ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}"
        if count > 1:
            code, text = ErrorCode.DUPLICATE_RESOURCE, f"{name!r} is named more than once"
        results.append(_User(user=name, error_code=code, error_message=text, credential_infos=[]))
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )
