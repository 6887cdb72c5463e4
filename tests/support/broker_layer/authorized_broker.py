"""A whole broker with an authorizer, and access control lists in a short form.

The form of a rule is `TOPIC:orders READ`, or `deny TOPIC:orders READ`; `TOPIC:ord* READ` is about a
prefix, and `TOPIC:* READ` about all topics.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

from kafka.protocol.api_message import ApiMessage

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.options import BrokerOptions
from metadata.security.acl_store import AclStore
from metadata.security.acls import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from quire.identity.principal import ANONYMOUS
from tests.support.broker_layer.served_broker import Client
from tests.support.broker_layer.whole_broker import OPTIONS, WholeBroker, whole_broker_parts

REFUSALS = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
EVERYTHING = (
    "TOPIC:* ALL",
    "GROUP:* ALL",
    "CLUSTER:kafka-cluster ALL",
    "TRANSACTIONAL_ID:* ALL",
)


def rule(text: str, principal: str = ANONYMOUS.text) -> AclBinding:
    """Read a rule."""
    is_denial = text.startswith("deny ")
    resource, operation = text.removeprefix("deny ").split(" ")
    kind, _, name = resource.partition(":")
    is_prefix = name.endswith("*") and name != "*"
    return AclBinding(
        ResourceType[kind],
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        name.removesuffix("*") if is_prefix else name,
        principal,
        "*",
        Operation[operation],
        Permission.DENY if is_denial else Permission.ALLOW,
    )


@dataclass(frozen=True, slots=True)
class AuthorizedBroker:
    """A broker that refuses what its lists do not allow. Its client is ANONYMOUS."""

    broker: WholeBroker
    acls: AclStore

    @property
    def client(self) -> Client:
        """The connection to the broker."""
        return self.broker.client

    async def permit(self, *rules: str, principal: str = ANONYMOUS.text) -> None:
        """Replace all rules, and wait until the broker applies them."""
        await self.acls.remove([AclFilter()])
        await self.acls.add([rule(each, principal) for each in rules])
        view = self.broker.process._cluster.acls
        assert view is not None
        await view.refresh()


@asynccontextmanager
async def authorized_broker(options: BrokerOptions = OPTIONS) -> AsyncIterator[AuthorizedBroker]:
    """Run one broker with an authorizer, without any rule."""
    async with whole_broker_parts(replace(options, authorizer=True)) as broker:
        yield AuthorizedBroker(broker, AclStore(broker.store, Random(3)))


def codes_in(message: ApiMessage) -> list[int]:
    """Return every error code in an answer."""
    return list(_codes(message.to_dict()))


def refusals_in(message: ApiMessage) -> list[int]:
    """Return every error of authorization in an answer."""
    return [code for code in codes_in(message) if code in REFUSALS]


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(each, int) and str(name).endswith("error_code"):
                yield each
            else:
                yield from _codes(each)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for each in value:
            yield from _codes(each)
