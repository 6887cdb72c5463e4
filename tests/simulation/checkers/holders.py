"""Checker: two processes never serve as the same bookie at the same time.

Source: protocol rules 2.1, 2.2; invariant "one live holder per bookie id".
"""

from collections.abc import Callable

from typing_extensions import override

from tests.simulation.checkers.checker import Checker
from tests.simulation.model import Model


class HoldersChecker(Checker):
    """Records which process last accepted a hello as which bookie."""

    name = "holders"

    def __init__(self, model: Model, is_running: Callable[[int], bool]) -> None:
        super().__init__(model)
        self._is_running = is_running
        self._nodes: dict[str, int] = {}

    @override
    def on_greeted(self, bookie_id: str, node: int) -> None:
        before = self._nodes.get(bookie_id, node)
        if before != node and self._is_running(before):
            self.report(f"processes {before} and {node} both serve as {bookie_id}")
        self._nodes[bookie_id] = node
