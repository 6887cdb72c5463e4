"""Check of a bookie's answer to the hello of this client. Pure.

Leaves the connection to `ledger_client.bookies.connection`.

Source: protocol rule 2.3.
"""

from bookie.wire.messages import Hello, HelloReply
from metadata.ids import BookieId


def violation_of(reply: HelloReply, hello: Hello, bookie_id: BookieId) -> str | None:
    """Return what is wrong with the acceptance of a hello to a bookie; None if nothing is."""
    if reply.bookie_id != bookie_id:
        return f"the hello reached {reply.bookie_id}"
    if not hello.wire_version_min <= reply.wire_version <= hello.wire_version_max:
        return f"it chose wire version {reply.wire_version}"
    if reply.features & ~hello.features:
        return f"it chose features {reply.features:#x}, of {hello.features:#x}"
    return None
