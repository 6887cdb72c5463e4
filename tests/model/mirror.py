"""Exchange of two bookies in every part of a world, to explore only one of two mirror images.

Leaves the exploration to `search`. With WQ = E all positions are equal, and b and c differ only in
their names if no fault is reserved to one of them. Positions are exchanged with the names: after
the exchange, b is where c was before.

Invariants: an actor's mirrored state is the state of the production code after the mirrored events.
The code's answer to every event is compared with its answer to the mirrored one, and a difference
ends the exploration. So no worlds are merged on the basis of an assumption.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment
from tests.model.protocols import DONE, FIRST, Effect, Event, Protocols, Told
from tests.model.store_calls import VALUE
from tests.model.words import (
    NAMES,
    WRITER,
    Answer,
    Failure,
    Message,
    Operation,
    Request,
    Seen,
    Update,
    ViolationError,
)
from tests.model.world import Pools, World

SWAPPED: Final = {1: 2, 2: 1}
"""The bookies b and c, and their positions."""
BOOKIE_EFFECTS: Final = ("add", "fence", "range", "back")
METADATA_EFFECTS: Final = ("store", "finish")
BOOKIE_EVENTS: Final = ("gone", "suspected", "returned")
METADATA_EVENTS: Final = ("stored", "conflicted", "read")

Actors = Protocols[AppendProtocol] | Protocols[RecoveryProtocol]


def swap(bookie: int) -> int:
    """Return the number that takes the place of this bookie or position."""
    return SWAPPED.get(bookie, bookie)


class Mirror:
    """The exchange, for one scope's pools."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._metadata: dict[int, int] = {}
        self._messages: dict[int, int] = {}
        self._operations: dict[int, int] = {0: 0}
        self._actors: dict[tuple[int, int], int] = {}
        pools.writers.watcher = self._watcher(pools.writers)
        pools.recoverers.watcher = self._watcher(pools.recoverers)

    def canonical(self, world: World) -> World:
        """Return the representative of a world and its mirror image.

        It is the one in which b's state has the lower number, or the lesser one if the states are
        equal.
        """
        ours, theirs = world.bookies[1], world.bookies[2]
        if ours < theirs:
            return world
        swapped = self._world(world)
        return swapped if ours > theirs else min(world, swapped)

    def _world(self, world: World) -> World:
        messages = [self._message(number) for number in world.messages]
        actors = [self._actor(actor, state) for actor, state in enumerate(world.actors)]
        return world._replace(
            metadata=self._stored(world.metadata),
            actors=tuple(actors),
            bookies=tuple([world.bookies[swap(number)] for number in range(len(world.bookies))]),
            messages=tuple(sorted(messages)),
            operations=tuple([self._operation(number) for number in world.operations]),
            lost=sum(
                world.lost >> swap(number) & 1 << number for number in range(len(world.bookies))
            ),
        )

    # -- metadata, messages, operations ------------------------------------------------------------

    def _stored(self, number: int) -> int:
        found = self._metadata.get(number)
        if found is None:
            values = self._pools.metadata
            stored = values.values[number]
            fragments = tuple(
                Fragment(fragment.first_entry_id, _swapped(fragment.ensemble))
                for fragment in stored.fragments
            )
            found = self._metadata[number] = values.number(replace(stored, fragments=fragments))
        return found

    def _message(self, number: int) -> int:
        found = self._messages.get(number)
        if found is None:
            pool = self._pools.messages
            found = self._messages[number] = pool.number(self._swapped(pool.values[number]))
        return found

    def _swapped(self, message: Message) -> Message:
        match message:
            case Request():
                return message._replace(bookie=swap(message.bookie))
            case Answer() | Failure():
                request = cast("Request", self._swapped(message.request))
                return message._replace(request=request)
            case Update(metadata, expected):
                return Update(self._stored(metadata), expected)
            case Seen(metadata, version):
                return Seen(self._stored(metadata), version)

    def _operation(self, number: int) -> int:
        found = self._operations.get(number)
        if found is None:
            pool = self._pools.operations
            operation = pool.values[number]
            assert operation is not None
            metadata, expected, history, reply = operation
            if metadata >= 0:
                metadata = self._stored(metadata)
            swapped = tuple(map(self._reply, history))
            reply = None if reply is None else self._reply(reply)
            found = pool.number(Operation(metadata, expected, swapped, reply))
            self._operations[number] = found
        return found

    def _reply(self, reply: tuple[int, ...]) -> tuple[int, ...]:
        return (VALUE, self._stored(reply[1]), reply[2]) if reply[0] == VALUE else reply

    # -- actors ------------------------------------------------------------------------------------

    def _actor(self, actor: int, state: int) -> int:
        """Return the actor's state after the mirrored events."""
        if state in (DONE, FIRST):
            return state
        key = int(actor != WRITER), state
        found = self._actors.get(key)
        if found is None:
            protocols: Actors = self._pools.recoverers if key[0] else self._pools.writers
            by, before, event, seen = protocols.origins[state]
            earlier = self._actor(by, before)
            found, _ = protocols.handle(by, earlier, self._event(event), seen)
            self._actors[key] = found
        return found

    def _event(self, event: Event) -> Event:
        if not isinstance(event, Told):
            return cast("Event", self._swapped(event))
        numbers = event.numbers
        if event.name in BOOKIE_EVENTS:
            return Told(event.name, (swap(numbers[0]),))
        if event.name in METADATA_EVENTS:
            return Told(event.name, (self._stored(numbers[0]), numbers[1]))
        return event

    def _effect(self, effect: Effect) -> Effect:
        numbers = effect.numbers
        if effect.name in BOOKIE_EFFECTS:
            return effect._replace(numbers=(swap(numbers[0]), *numbers[1:]))
        if effect.name in METADATA_EFFECTS:
            return effect._replace(numbers=(self._stored(numbers[0]), *numbers[1:]))
        return effect

    def _watcher(self, protocols: Actors) -> Callable[[int, int, Event, int], None]:
        def compare(actor: int, state: int, event: Event, seen: int) -> None:
            after, effects = protocols.handle(actor, state, event, seen)
            image = self._actor(actor, state)
            there, found = protocols.handle(actor, image, self._event(event), seen)
            expected = sorted(map(self._effect, effects))
            if there != self._actor(actor, after) or expected != sorted(found):
                raise ViolationError("two bookies that are equal are not treated as equal")

        return compare


def _swapped(ensemble: tuple[BookieId, ...]) -> tuple[BookieId, ...]:
    swapped = [NAMES[swap(NAMES.index(name))] for name in ensemble]
    return tuple(swapped[swap(position)] for position in range(len(swapped)))
