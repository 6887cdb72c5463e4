"""A request, and the rights that it needs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceResponse

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
)
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from tests.support.broker_layer.served_broker import (
    Client,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TXN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
ON_CLUSTER = "CLUSTER:kafka-cluster"
ON_TXN = "TRANSACTIONAL_ID:x"


@dataclass(frozen=True, slots=True)
class Case:
    """A request, the rights that it needs, and the error without any right."""

    key: ApiKey
    request: ApiMessage | bytes
    needs: "Sequence[str]"
    refusal: ErrorCode
    version: int | None = None

    @property
    def title(self) -> str:
        return f"{self.key.shown}-{self.used_version}-{'+'.join(self.needs)}"

    @property
    def used_version(self) -> int:
        return ADVERTISED[self.key].max if self.version is None else self.version

    async def ask(self, client: Client) -> ApiMessage:
        if isinstance(self.request, ApiMessage):
            return await client.ask(self.key, self.request, self.used_version)
        client.send(self.key, self.used_version, self.request)
        kind = ProduceResponse if self.key is ApiKey.PRODUCE else FetchResponse
        response = kind.decode(await client.body(), version=self.used_version)  # type: ignore[no-untyped-call]
        assert isinstance(response, ApiMessage)
        return response
