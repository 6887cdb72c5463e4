"""Errors of the access control lists of a cluster.

Leaves errors of the metadata service to `metadata.errors`.
"""

from metadata.errors import MetadataError


class InvalidAclError(MetadataError, ValueError):
    """A binding, or a filter of bindings, is not valid."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the ACL is not valid: {what}; nothing was changed")
        self.what = what


class TooManyAclsError(MetadataError):
    """The store holds as many bindings as one part of it may hold."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"more than {limit} ACLs would be in one part of the store: use prefixes or '*' in "
            "place of many names, or remove ACLs that are not needed"
        )
        self.limit = limit
