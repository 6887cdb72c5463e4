"""Owner of a ledger: the principal that created it. Pure.

Leaves what an owner may do to the bookies, and who a client is to them too: they map its
certificate to a principal.

Format: the text of a principal, `User:<name>`, of at most OWNER_CHARACTERS_MAX characters, none of
them a control character. Empty text: the ledger has no owner.

Invariant: the owner of a ledger never changes.

Source: protocol rule 12.2.
"""

from typing import Final

from quire.identity.principal import parse_principal

OWNER_CHARACTERS_MAX: Final = 512
NO_OWNER: Final = ""


def is_owner(text: str) -> bool:
    """Return whether a text is that of a principal that can own a ledger."""
    if len(text) > OWNER_CHARACTERS_MAX or not text.isprintable():
        return False
    try:
        parse_principal(text)
    except ValueError:
        return False
    return True
