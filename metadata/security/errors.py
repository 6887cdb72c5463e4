"""Errors of the metadata of users, quotas and grants on ledgers, one class per fact.

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


class QuotaNotFoundError(MetadataError):
    """The entity has no quota, or none of the named values."""

    def __init__(self, entity: str) -> None:
        super().__init__(f"{entity} has no such quota: `quire quota list` shows the existing ones")
        self.entity = entity


class InvalidGrantError(MetadataError, ValueError):
    """A part of a grant on ledgers cannot be used; see `text` and `why`."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(
            f"{text[:600]!r} cannot be part of a grant ({why}): write a principal as User:NAME, "
            "and ledgers as ledger:ID, chain:NAME, chain-prefix:PREFIX, owner:User:NAME or all"
        )
        self.text = text
        self.why = why


class GrantNotFoundError(MetadataError):
    """The principal does not have this grant."""

    def __init__(self, principal: str, role: str, resource: str) -> None:
        super().__init__(
            f"{principal} does not have the role {role} on {resource}: `quire grant list` shows "
            "the existing grants"
        )
        self.principal = principal
        self.role = role
        self.resource = resource


class TooManyGrantsError(MetadataError):
    """A principal would have more grants than one can have."""

    def __init__(self, principal: str, limit: int) -> None:
        super().__init__(
            f"{principal} would have more than {limit} grants: remove some (`quire grant remove`), "
            "or grant roles on chain-prefix:PREFIX or owner:User:NAME instead of single ledgers"
        )
        self.principal = principal
        self.limit = limit


class TooManyPrincipalsError(MetadataError):
    """The cluster has as many principals with grants as it can have."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} principals have grants, the most that the cluster can have: remove grants "
            "that are not needed (`quire grant remove`), or map several certificates to one "
            "principal (tls_principal_rules)"
        )
        self.limit = limit
