"""Type of guards: each decides about the requests of one API before its handler.

Leaves the decisions to the guards, and which API has which guard to `guarded_handlers`.

Source: KIP-11; Kafka's KafkaApis.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from broker_layer.handlers import Handler
from broker_layer.kafka.messages import ApiMessage
from broker_layer.request_context import RequestContext
from broker_layer.security.rights import Rights
from metadata.security.acls import Operation, ResourceType

ItemT = TypeVar("ItemT")
MessageT = TypeVar("MessageT", bound="ApiMessage")


class TopicIds(Protocol):
    """Lookup of topics by their ids."""

    def topic_name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """One request, the rights of its client, and the handler behind the guard."""

    request: ApiMessage
    context: RequestContext
    rights: Rights
    topic_ids: TopicIds
    handler: Handler

    async def serve(self, kind: type[MessageT]) -> MessageT:
        """Return the handler's answer."""
        response = await self.handler(self.request, self.context)
        assert isinstance(response, kind), "the handler answers its own API"
        return response

    def split(
        self,
        items: Iterable[ItemT],
        operation: Operation,
        resource: ResourceType,
        name_of: Callable[[ItemT], str],
    ) -> tuple[list[ItemT], list[ItemT]]:
        """Return the items of a request that are allowed, and the refused ones."""
        allowed: list[ItemT] = []
        refused: list[ItemT] = []
        for item in items:
            is_allowed = self.rights.check(operation, resource, name_of(item))
            (allowed if is_allowed else refused).append(item)
        return allowed, refused


Guard = Callable[[GuardedCall], Awaitable[ApiMessage | bytes]]
"""Returns the answer to a request: the handler's, or a refusal."""
