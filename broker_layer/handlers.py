"""Request handlers, which a family of APIs gives to the dispatcher by API key, and what they share:
rows of answers, and the turns of the event loop that a large request takes.

Leaves calling them to `server.dispatch`, the type of faster handlers to `server.exchange`, and who
has the next turn to `quire.server.connection_context`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar, cast

from broker_layer.errors import TopicError, code_in
from broker_layer.kafka.messages import ApiMessage
from broker_layer.security.authorizer import Rights
from quire.identity.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Origin of one request, and the API version of the request and its answer."""

    api_version: int
    client_id: str
    """Empty where the client gave none."""
    client_host: str
    listener: str
    """Name of the listener that the client connected to: Metadata returns addresses of this one."""
    connection_id: int
    """Unique within this process. Fetch sessions and group members are not bound to it."""
    principal: Principal = ANONYMOUS
    """Who the client is."""
    is_private: bool = True
    """Whether no other machine can read the connection: it has TLS, or is from a loopback address.
    """
    rights: Rights | None = None
    """What the client may do; None without an authorizer."""


Handler = Callable[[Any, RequestContext], Awaitable[ApiMessage | bytes]]
"""Takes a decoded request of the API by which the dispatcher selects it; returns the response, or
its body encoded in the request's version. A refusal is part of the response and is not raised.
"""

Key = TypeVar("Key")
Element = TypeVar("Element")
AnswerT = TypeVar("AnswerT")

_CODES: Final = ("error_code", "partition_error_code")


def answer(
    kind: Callable[..., AnswerT], error: TopicError | None = None, **fields: object
) -> AnswerT:
    """Return an answer, or a row of one, with the code and the text of an error, or of none, where
    it has fields for them. Fields that are not given have the defaults of Kafka's schema.
    """
    known = cast("Any", kind).fields
    errors: dict[str, object] = {name: code_in(error) for name in _CODES if name in known}
    if "error_message" in known:
        errors["error_message"] = None if error is None else error.text
    return kind(**errors, **fields)


async def error_of(work: Awaitable[object]) -> TopicError | None:
    """Return why work was refused; None if it is done."""
    try:
        await work
    except TopicError as error:
        return error
    return None


def grouped(pairs: Iterable[tuple[Key, Element]]) -> dict[Key, list[Element]]:
    """Return the second elements of pairs by the first ones, all in their order."""
    groups: dict[Key, list[Element]] = {}
    for key, element in pairs:
        groups.setdefault(key, []).append(element)
    return groups


TURN_S: Final = 0.0015
"""uvloop counts whole milliseconds: a turn takes one or two. A small request passes the loop three
or four times, and a large one may have a turn each time.
"""
SLICE_ELEMENTS: Final = 100
"""Number of elements of one slice, where each takes some microseconds."""


class Turns:
    """Turns of one request; the first begins when this is made."""

    __slots__ = ("_began_s", "_now")

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._began_s = self._now()

    async def pass_on(self) -> None:
        """Let other work run, if this turn is over."""
        if self._now() - self._began_s > TURN_S:
            await asyncio.sleep(0)
            self._began_s = self._now()


def slices(elements: Iterable[Element]) -> Iterator[list[Element]]:
    """Yield SLICE_ELEMENTS elements at a time, after each of which a turn may end."""
    rest = iter(elements)
    while some := list(islice(rest, SLICE_ELEMENTS)):
        yield some
