"""Users of a whole broker: altered and described over a connection, and listed as served."""

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.support.broker_layer.whole_broker import whole_broker

UPSERTION = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
    name="alice", mechanism=1, iterations=4_096, salt=b"salt", salted_password=bytes(32)
)


async def test_a_broker_alters_and_describes_users() -> None:
    async with whole_broker() as client:
        versions = await client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0)
        assert isinstance(versions, ApiVersionsResponse)
        served = {api_key.api_key for api_key in versions.api_keys}
        assert served >= {50, 51}
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[UPSERTION])
        altered = await client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, 0)
        assert isinstance(altered, AlterUserScramCredentialsResponse)
        assert [(result.user, result.error_code) for result in altered.results] == [("alice", 0)]
        question = DescribeUserScramCredentialsRequest(users=None)
        answer = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, question, 0)
        assert isinstance(answer, DescribeUserScramCredentialsResponse)
        assert answer.error_code == ErrorCode.NONE
        (shown,) = answer.results
        infos = [(info.mechanism, info.iterations) for info in shown.credential_infos]
        assert (shown.user, infos) == ("alice", [(1, 4_096)])
