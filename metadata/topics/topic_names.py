"""Keeps the names of topics apart that differ in `.` and `_` alone: metrics could not tell them.

Leaves making the topics to `metadata.topics.topic_store`, in one multi with what is said here.

Format: the value of `/topic-names/<name with _ for .>` is a msgpack array [1, name str]: the topic
that holds all names which are alike. Names without either character need none.

Invariants: of topics with names that are alike, one at most is there; who makes one changes the
node, so that of two at once one fails; a name is held by a deleted topic until another one takes
it. A topic that was made before there were such nodes has none: brokers that see it refuse others.

Source: Kafka's rule for names that collide in metrics.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from metadata.errors import MetadataFormatError, NodeNotFoundError, TopicNameHeldError
from metadata.msgpack_fields import FieldError, pack, text_of, unpack_versioned
from metadata.paths import topic_name_path
from metadata.store.interface import CompareAndSet, Create, MetadataStore, Operation

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 2


class TopicNames:
    """The holders of names that are alike; `is_there` tells whether there is a topic now."""

    def __init__(self, store: MetadataStore, is_there: Callable[[str], Awaitable[bool]]) -> None:
        self._store = store
        self._is_there = is_there

    async def taking(self, name: str) -> list[Operation]:
        """Return what is to be done together with the making of a topic; nothing for a name that
        no other is like. Raises TopicNameHeldError while there is a topic with one.
        """
        if "_" not in alike(name):
            return []
        path = topic_name_path(alike(name))
        value = pack(path, [_FORMAT_VERSION, name])
        try:
            held = await self._store.get(path, fresh=True)
        except NodeNotFoundError:
            return [Create(path, value)]
        holder = _name_in(path, held.value)
        if holder != name and await self._is_there(holder):
            raise TopicNameHeldError(name, holder)
        return [CompareAndSet(path, value, held.version)]


def alike(name: str) -> str:
    """Return what a topic is called in metrics: the same for all names that are alike."""
    return name.replace(".", "_")


def _name_in(path: str, value: bytes) -> str:
    fields = unpack_versioned(path, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        return text_of(fields[1])
    except FieldError as error:
        raise MetadataFormatError(path, str(error)) from error
