"""Owner of a chain: the principal that created it through a gateway. Pure.

Leaves what an owner may do to the gateway, which creates the node. Other creators of chains make
none: such a chain has no owner.

Invariants: the node is created in one multi with the chain's head, and never changes; the removal
of a chain removes it.

Source: docs/security.md, "A gateway for clients".
"""

from typing import Final

from metadata.ledgers.ledger_owner import is_owner
from metadata.records import TEXT, checked, codec_of_one

OWNER_CODEC: Final = codec_of_one("principal", checked(TEXT, is_owner, "a principal"))
