"""Errors of rights on the metadata's nodes.

Leaves all other errors of the metadata to `metadata.errors`.
"""

from metadata.errors import MetadataError, StoreRefusedError


class AccessRefusedError(StoreRefusedError):
    """The login of this process does not have the right to this request; see `path`."""

    def __init__(self, path: str, address: str, why: str) -> None:
        MetadataError.__init__(
            self,
            f"the login of this process does not have the right to this request for {path} at "
            f"{address} ({why}): name a client's file with a login in the metadata URI "
            "(?client=FILE) that is one of this cluster's servers or, for ledgers and chains, one "
            "of its clients. `quire metadata secure` gives rights to other logins",
        )
        self.path = path
        self.address = address
        self.why = why


class NotAServerError(MetadataError):
    """The process that changes the rights would lose its own."""

    def __init__(self, address: str) -> None:
        super().__init__(
            f"the login of this process is none of the servers that {address} would have, and "
            "nothing was changed: name a client's file with a login in the metadata URI "
            "(?client=FILE), and give that login as a server"
        )
        self.address = address


class InvalidIdentityError(MetadataError, ValueError):
    """A text is not an identity of ZooKeeper's access lists, or the identities do not fit."""

    def __init__(self, identity: str, why: str) -> None:
        super().__init__(
            f"{identity[:600]!r} cannot have rights ({why}): write digest:USER:HASH, as `quire "
            "metadata identity` prints it, or x509: and the subject of a certificate"
        )
        self.identity = identity
        self.why = why
