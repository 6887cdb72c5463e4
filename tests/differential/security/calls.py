"""A request that users with different rights send, and what it is about.

Leaves the requests to the `*_calls` modules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.differential.security.secure_run import SecureRun
from tests.differential.wire import Tree

SHARED_TOPIC: Final = "shared"
SHARED_GROUP: Final = "shared-group"
SHARED_ID: Final = "shared-id"
DOOMED_BY_NAME: Final = "doomed"
DOOMED_BY_ID: Final = "doomed-by-id"
GROWN: Final = "grown"
DOOMED: Final = (DOOMED_BY_NAME, DOOMED_BY_ID, GROWN)
"""Topics of each user alone."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What exists before the first request: ids of topics, and a transactional producer."""

    topic_ids: Mapping[str, Tree]
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One user, as the requests see it."""

    run: SecureRun
    short: str
    shared: Shared

    @property
    def user(self) -> str:
        """Name of the user."""
        return self.run.name(self.short)

    @property
    def topic(self) -> str:
        """Topic of all users; it has three records."""
        return self.run.name(SHARED_TOPIC)

    @property
    def group(self) -> str:
        """Group of all users; it has one offset."""
        return self.run.name(SHARED_GROUP)

    @property
    def transactional_id(self) -> str:
        """Transactional id of all users, which has a producer."""
        return self.run.name(SHARED_ID)

    def own(self, name: str) -> str:
        """Return a name of this user alone."""
        return self.run.name(self.short + name)

    def id_of(self, name: str) -> Tree:
        """Return the id of a topic, by its complete name."""
        return self.shared.topic_ids[name]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, in one version."""

    name: str
    api: tuple[str, int]
    version: int
    values: Callable[[Cell], Mapping[str, Tree]]
    without: tuple[str, ...] = ()
    """Fields that earlier requests of other users change."""
    listed: tuple[str, str] | None = None
    """For a list of everything: the field with the list, and the one with the name."""
    is_patient: bool = False
    """Whether a request is repeated while the answer says "not yet"."""
