"""Worlds of one scope of a writer and its recoverers, for `search`.

Leaves the steps to `steps`, the rules to `checks`, and mirror images to `mirror`.
"""

from collections.abc import Iterator

from tests.model.checks import Checks
from tests.model.labels import Label
from tests.model.mirror import Mirror
from tests.model.scopes import first_parts
from tests.model.steps import Steps
from tests.model.words import Scope
from tests.model.world import Pools, World, show_world


class LedgerWorlds:
    """Start, steps and checks of a scope."""

    def __init__(self, scope: Scope) -> None:
        self._pools = Pools(scope, first_parts(scope))
        self._steps = Steps(self._pools)
        self._checks = Checks(self._pools, self._steps)
        self._mirror = Mirror(self._pools) if scope.is_mirrored else None
        self.start = self._pools.start

    @property
    def label(self) -> Label:
        """Name of the latest step."""
        return self._steps.label

    def after(self, world: World) -> Iterator[tuple[Label, World]]:
        """Take every possible step of a world."""
        if self._mirror is None:
            return self._steps.after(world)
        canonical = self._mirror.canonical
        return ((label, canonical(after)) for label, after in self._steps.after(world))

    def check(self, world: World) -> None:
        """Raise ViolationError unless the rules are true in a world."""
        self._checks.check(world)

    def check_rest(self, world: World) -> None:
        """Raise ViolationError unless everything has ended in a world without steps left."""
        self._steps.label = Label("then nothing more happens")
        self._checks.check_rest(world)

    def show(self, world: World) -> str:
        """Format a world as one line."""
        return show_world(world, self._pools)
