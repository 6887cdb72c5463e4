"""Check that no two topics have equivalent names. Names that differ only in `.` and `_` are
equivalent, because metrics cannot distinguish them.

Leaves creating the topics to `metadata.topics.topic_store`, in one multi with the operations from
here.

The node of all equivalent names holds the name of the one topic that has it. Names without either
character need no node.

Invariants: at most one topic with equivalent names exists; creating a topic changes the node, so
that one of two concurrent creations fails; a deleted topic holds its name until another topic takes
it. A topic from before these nodes existed has none: brokers that see it refuse equivalent names.

Source: Kafka's rule for names that collide in metrics.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from metadata.errors import TopicNameHeldError
from metadata.paths import topic_name_path
from metadata.records import TEXT, codec_of_one
from metadata.store.interface import CompareAndSet, Create, MetadataStore, Operation, find

TOPIC_NAME_CODEC: Final = codec_of_one("name", TEXT)


class TopicNames:
    """Holders of equivalent names; `is_there` returns whether a topic currently exists."""

    def __init__(self, store: MetadataStore, is_there: Callable[[str], Awaitable[bool]]) -> None:
        self._store = store
        self._is_there = is_there

    async def taking(self, name: str) -> list[Operation]:
        """Return the operations to apply together with the creation of a topic; none if no other
        name is equivalent. Raises TopicNameHeldError while a topic with an equivalent name exists.
        """
        if "_" not in alike(name):
            return []
        path = topic_name_path(alike(name))
        value = TOPIC_NAME_CODEC.pack(path, name)
        held = await find(self._store, path)
        if held is None:
            return [Create(path, value)]
        holder = TOPIC_NAME_CODEC.unpack(path, held.value)
        if holder != name and await self._is_there(holder):
            raise TopicNameHeldError(name, holder)
        return [CompareAndSet(path, value, held.version)]


def alike(name: str) -> str:
    """Return a topic's name in metrics, which is the same for all equivalent names."""
    return name.replace(".", "_")
