"""Right that each operation on a ledger needs, and the text of a refusal. Pure.

Leaves roles and the rights that they give to `metadata.security.ledger_roles`, and operations that
need the key of repair to `bookie.server.server_access`.

Invariant: every operation has a row.

Source: protocol rule 12.3.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from bookie.server.server_access import LedgerOperation
from metadata.ids import LedgerId
from metadata.security.ledger_roles import EVERY_RIGHT, LedgerRight, LedgerRole

RIGHT_FOR: Final[Mapping[LedgerOperation, LedgerRight]] = MappingProxyType(
    {
        LedgerOperation.ADD: LedgerRight.APPEND,
        LedgerOperation.WRITE_LAC: LedgerRight.APPEND,
        LedgerOperation.READ: LedgerRight.READ,
        LedgerOperation.FENCE: LedgerRight.FENCE,
        LedgerOperation.RECOVERY_ADD: LedgerRight.RECOVERY_ADD,
        # The key of repair allows these, and no role does.
        LedgerOperation.READ_ACCESS: LedgerRight.NONE,
        LedgerOperation.FENCE_WITHOUT_KEY: LedgerRight.NONE,
    }
)

# Plain numbers, because operations on members of an enumeration are slow.
RIGHT_BITS: Final[Mapping[LedgerOperation, int]] = MappingProxyType(
    {operation: int(right) for operation, right in RIGHT_FOR.items()}
)
EVERY_BIT: Final = int(EVERY_RIGHT)
READ_BIT: Final = int(LedgerRight.READ)
APPEND_BIT: Final = int(LedgerRight.APPEND)
RECOVERY_ADD_BIT: Final = int(LedgerRight.RECOVERY_ADD)

_WORDS: Final[Mapping[LedgerRight, tuple[str, LedgerRole]]] = MappingProxyType(
    {
        LedgerRight.READ: ("read", LedgerRole.READER),
        LedgerRight.APPEND: ("append to", LedgerRole.WRITER),
        LedgerRight.FENCE: ("fence", LedgerRole.RECOVERER),
        LedgerRight.RECOVERY_ADD: ("add past a fence of", LedgerRole.RECOVERER),
    }
)
"""What a right allows, and the smallest role that includes it."""


def refusal_text(principal: str, operation: LedgerOperation, ledger_id: LedgerId) -> str:
    """Return why a principal may not do an operation, and the next step. An empty principal proved
    nothing.
    """
    verb, role = _WORDS[RIGHT_FOR[operation]]
    if not principal:
        return (
            f"a client without a principal may not {verb} ledger {ledger_id}: connect with a "
            "certificate that the bookie's tls_principal_rules map to a name, or log in, if the"
            " bookie's client_logins are on, with [sasl] in the client's file"
        )
    return (
        f"{principal} may not {verb} ledger {ledger_id}: an administrator can give it the role with"
        f" `quire grant add {principal!r} {role} ledger:{ledger_id}`"
    )
