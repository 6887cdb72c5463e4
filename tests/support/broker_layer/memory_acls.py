"""Access control lists in memory, which a test changes at once."""

from collections.abc import Callable, Iterable

from metadata.callbacks import Callbacks
from metadata.security.acls import AclBinding
from metadata.store.interface import Cancel


class MemoryAcls:
    """Lists in memory, which count how often they are read."""

    def __init__(self) -> None:
        self.rows: list[AclBinding] = []
        self.is_readable = True
        self.reads = 0
        self._callbacks = Callbacks[()]()

    @property
    def bindings(self) -> Iterable[AclBinding]:
        self.reads += 1
        return iter(self.rows)

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        return self._callbacks.add(callback)

    def change(self, *rows: AclBinding) -> None:
        self.rows = list(rows)
        self._callbacks.notify()
