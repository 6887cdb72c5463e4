"""Errors of the metadata of users and quotas, one class per fact.

Leaves errors of the store to `metadata.errors`. No error holds a key, a salt or a password.
"""

from metadata.errors import MetadataError


class InvalidUserNameError(MetadataError, ValueError):
    """A user's name is empty, too long, or has a control character."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:250]!r} is not a valid user name: use 1 to 255 characters, and no control "
            "characters"
        )
        self.name = name


class UserExistsError(MetadataError):
    """A user with this name exists already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"user {name!r} exists already: choose another name, or change its password with "
            "`quire user password`"
        )
        self.name = name


class UserNotFoundError(MetadataError):
    """No user has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no user {name!r}: `quire user list` shows the existing ones")
        self.name = name


class CredentialNotFoundError(MetadataError):
    """The user has no credential of this mechanism."""

    def __init__(self, name: str, mechanism: str) -> None:
        super().__init__(
            f"user {name!r} has no credential of {mechanism}: `quire user show` shows those that "
            "exist"
        )
        self.name = name
        self.mechanism = mechanism


class TooManyUsersError(MetadataError):
    """The cluster has as many users as it can have."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the cluster has {limit} users, the most that it can have: remove users that are not "
            "needed (`quire user remove`)"
        )
        self.limit = limit


class InvalidQuotaError(MetadataError, ValueError):
    """A quota is for nothing that can have one, or has a value that it cannot have."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class TooManyQuotasError(MetadataError):
    """The cluster has as many quotas as it can have."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the cluster has quotas of {limit} entities, the most that it can have: remove quotas "
            "that are not needed, or use the default of users or client ids"
        )
        self.limit = limit
