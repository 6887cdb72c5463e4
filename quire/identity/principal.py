"""Principal: who a client is. Pure.

Leaves proving it to the servers, and what it may do to the authorizers.

Format: `User:<name>`, as Kafka writes it. The name of a client that proved nothing is `ANONYMOUS`.
"""

from dataclasses import dataclass
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity of a client."""

    name: str
    kind: str = USER

    @property
    def text(self) -> str:
        """The principal as it is stored and shown."""
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """Parse `User:<name>`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal: write User:NAME")
    return Principal(name, kind)
