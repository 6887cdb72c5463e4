"""Handlers of the APIs of users' credentials and of quotas: DescribeUserScramCredentials,
AlterUserScramCredentials, DescribeClientQuotas and AlterClientQuotas.

Leaves users and quotas to `metadata.security`, filters to `quota_filters`, what quotas do to
`server.quotas`, and the decision whether a client may call them to the authorization of requests.

Invariants: all alterations of one user, or of one entity, in a request are one write: either all of
them are applied or none. Each is answered and noted in the audit log by itself.

Source: KIP-546, KIP-554.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from broker_layer.errors import TopicError, code_in
from broker_layer.handlers import Handler, RequestContext, answer, error_of
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ApiMessage,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker_layer.kafka.versions import ApiKey
from broker_layer.security.quota_filters import filter_of
from metadata.errors import MetadataError, OutcomeUnknownError, StoreUnavailableError
from metadata.security.errors import (
    CredentialNotFoundError,
    InvalidQuotaError,
    InvalidUserNameError,
    TooManyQuotasError,
    TooManyUsersError,
)
from metadata.security.quota_store import QuotaStore, QuotaTable
from metadata.security.quotas import (
    QUOTAS_MAX,
    QuotaChanges,
    QuotaEntity,
    QuotaKey,
    check_change,
    entity_of,
    node_name,
)
from metadata.security.user_store import UserStore, UserTable
from metadata.security.users import UserRecord, check_user_name
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism, credential_of
from quire.server.server_log import AuditLog

ALTERED_MAX: Final = 1_000
"""Maximum number of users, or of entities, that one request alters."""
CHANGES_AT_ONCE_MAX: Final = 32
"""Maximum number of them whose changes are under way at the same time."""
USERS_DESCRIBED_MAX: Final = 5_000
"""Maximum number of users in one description: encoding it takes about 0.1 s."""
QUOTAS_DESCRIBED_MAX: Final = QUOTAS_MAX + ALTERED_MAX
"""Maximum number of entities in one description; no cluster has more, see QUOTAS_MAX."""

MECHANISMS: Final = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}
"""Mechanisms by their numbers in Kafka's messages."""
NOT_PRIVATE: Final = (
    "this connection has no TLS and is not from the broker's machine: connect to a listener with "
    "TLS, and use another password, because others may have read this one"
)

_NUMBERS: Final = {mechanism: number for number, mechanism in MECHANISMS.items()}
_CODES: Final = {
    InvalidUserNameError: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    CredentialNotFoundError: ErrorCode.RESOURCE_NOT_FOUND,
    TooManyUsersError: ErrorCode.POLICY_VIOLATION,
    InvalidQuotaError: ErrorCode.INVALID_REQUEST,
    TooManyQuotasError: ErrorCode.POLICY_VIOLATION,
    StoreUnavailableError: ErrorCode.REQUEST_TIMED_OUT,
    OutcomeUnknownError: ErrorCode.REQUEST_TIMED_OUT,
}
_User = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_AlteredUser = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Entry = AlterClientQuotasRequest.EntryData
_AlteredEntity = AlterClientQuotasResponse.EntryData
_Entity = DescribeClientQuotasResponse.EntryData


class _Audit:
    """Lines of one request in the audit log."""

    def __init__(self, log: AuditLog, act: str, context: RequestContext) -> None:
        self._log = log
        self._act = act
        self._who, self._peer = context.principal.text, context.client_host

    def refused(self, error: TopicError, **values: object) -> None:
        """Note that something is not even tried."""
        self._log.refused(
            self._act, who=self._who, peer=self._peer, error=error.code.name, **values
        )

    def done(self, error: TopicError | None, **values: object) -> None:
        """Note what was tried."""
        self._log.done(
            self._act,
            who=self._who,
            peer=self._peer,
            failed=error is not None,
            **values,
            error=code_in(error).name,
        )


# -- users ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Alterations:
    """What a request alters of one user."""

    deletions: list[_Deletion] = field(default_factory=list)
    upsertions: list[_Upsertion] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class UserHandlers:
    """Handlers of the APIs of users for one broker. The creator of each part also closes it.

    Deletions come before upsertions. No answer and no line of the log holds a key, a salt or a
    salted password. A request that changes passwords is refused where others could have read it.
    """

    _users: UserStore
    _table: UserTable
    _audit: AuditLog

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each API key."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    async def describe(
        self, request: DescribeUserScramCredentialsRequest, _: RequestContext
    ) -> ApiMessage:
        """Answer DescribeUserScramCredentials: mechanisms and iterations; no name requests all."""
        asked = [user.name for user in request.users or ()]
        try:
            await self._table.refresh()
        except MetadataError as error:
            return answer(DescribeUserScramCredentialsResponse, _translated(error))
        if len(asked or self._table.users) > USERS_DESCRIBED_MAX:
            text = f"at most {USERS_DESCRIBED_MAX} users are described at once: name fewer users"
            refusal = TopicError(ErrorCode.INVALID_REQUEST, text)
            return answer(DescribeUserScramCredentialsResponse, refusal)
        counts = Counter(asked or sorted(self._table.users))
        rows = [self._named(name, count) for name, count in counts.items()]
        return answer(DescribeUserScramCredentialsResponse, results=rows)

    def _named(self, name: str, count: int) -> _User:
        user = self._table.users.get(name)
        if count > 1:
            text = f"{name!r} is named more than once: name each user once"
            return answer(_User, TopicError(ErrorCode.DUPLICATE_RESOURCE, text), user=name)
        if user is None:
            text = f"there is no user {name!r}"
            return answer(_User, TopicError(ErrorCode.RESOURCE_NOT_FOUND, text), user=name)
        return answer(_User, user=name, credential_infos=_infos(user))

    async def alter(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> ApiMessage:
        """Answer AlterUserScramCredentials: one result for each user, in the order in which the
        request names them.
        """
        asked: dict[str, _Alterations] = {}
        for deletion in request.deletions:
            asked.setdefault(deletion.name, _Alterations()).deletions.append(deletion)
        for upsertion in request.upsertions:
            asked.setdefault(upsertion.name, _Alterations()).upsertions.append(upsertion)
        audit = _Audit(self._audit, "AlterUserScramCredentials", context)
        refusal = None if context.is_private else TopicError(ErrorCode.INVALID_REQUEST, NOT_PRIVATE)
        refusal = refusal or _too_many(len(asked), "users")
        if refusal is not None:
            audit.refused(refusal, users=len(asked))
            results: list[TopicError | None] = [refusal] * len(asked)
        else:
            works = (self._alter(name, asked[name], audit) for name in asked)
            results = await _altered(works, self._table)
        rows = [
            answer(_AlteredUser, error, user=name)
            for name, error in zip(asked, results, strict=True)
        ]
        return answer(AlterUserScramCredentialsResponse, results=rows)

    async def _alter(self, name: str, alterations: _Alterations, audit: _Audit) -> None:
        try:
            deletions, upsertions = _checked_user(name, alterations)
        except TopicError as error:
            audit.refused(error, user=name)
            raise
        failure = await error_of(_stored(self._users.alter(name, deletions, upsertions)))
        audit.done(
            failure,
            user=name,
            deleted=[deletion.value for deletion in deletions],
            stored=[upsertion.mechanism.value for upsertion in upsertions],
        )
        if failure is not None:
            raise failure


def _checked_user(
    name: str, alterations: _Alterations
) -> tuple[list[ScramMechanism], list[ScramCredential]]:
    """Return the deletions and the credentials of one user. Raises TopicError."""
    try:
        check_user_name(name)
    except InvalidUserNameError as error:
        raise _translated(error) from error
    deletions = [_mechanism(deletion.mechanism) for deletion in alterations.deletions]
    upsertions = [_credential(upsertion) for upsertion in alterations.upsertions]
    named = [*deletions, *(upsertion.mechanism for upsertion in upsertions)]
    if len(dict.fromkeys(named)) != len(named):
        text = f"a credential of {name!r} is altered more than once: alter each once"
        raise TopicError(ErrorCode.DUPLICATE_RESOURCE, text)
    return deletions, upsertions


def _mechanism(number: int) -> ScramMechanism:
    if number not in MECHANISMS:
        known = ", ".join(f"{code} ({mechanism})" for code, mechanism in MECHANISMS.items())
        text = f"mechanism {number} is unknown: use one of {known}"
        raise TopicError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, text)
    return MECHANISMS[number]


def _credential(asked: _Upsertion) -> ScramCredential:
    mechanism = _mechanism(asked.mechanism)
    try:
        return credential_of(
            mechanism, bytes(asked.salted_password), bytes(asked.salt), asked.iterations
        )
    except ValueError as error:
        raise TopicError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error


def _infos(user: UserRecord) -> list[_User.CredentialInfo]:
    return [
        _User.CredentialInfo(mechanism=_NUMBERS[login.mechanism], iterations=login.iterations)
        for login in user.credentials
    ]


# -- quotas --------------------------------------------------------------------------------------


class _Change(NamedTuple):
    """What a request alters of one entity."""

    entity: QuotaEntity
    changes: QuotaChanges


@dataclass(slots=True, eq=False, repr=False)
class QuotaHandlers:
    """Handlers of the APIs of quotas for one broker. The creator of each part also closes it.

    An entity that a request names twice is changed by neither. With `validate_only` nothing is
    written.
    """

    _quotas: QuotaStore
    _table: QuotaTable
    _audit: AuditLog

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each API key."""
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
        }

    async def describe(self, request: DescribeClientQuotasRequest, _: RequestContext) -> ApiMessage:
        """Answer DescribeClientQuotas: the entities of the filter, and their values."""
        try:
            wanted = filter_of(request.components, is_strict=request.strict)
            await self._table.refresh()
        except MetadataError as error:
            return answer(DescribeClientQuotasResponse, _translated(error), entries=None)
        quotas = self._table.set.quotas
        entries = [
            _Entity(
                entity=[
                    _Entity.EntityData(entity_type=kind.value, entity_name=name)
                    for kind, name in entity.names
                ],
                values=[
                    _Entity.ValueData(key=key.value, value=value)
                    for key, value in quotas[entity].items()
                ],
            )
            for entity in sorted(quotas, key=node_name)
            if wanted.selects(entity)
        ]
        return answer(DescribeClientQuotasResponse, entries=entries[:QUOTAS_DESCRIBED_MAX])

    async def alter(self, request: AlterClientQuotasRequest, context: RequestContext) -> ApiMessage:
        """Answer AlterClientQuotas: one result for each entry, in the order of the request. It
        names its entity as the request does, also if that is invalid.
        """
        entries, audit = list(request.entries), _Audit(self._audit, "AlterClientQuotas", context)
        refusal = _too_many(len(entries), "entities")
        if refusal is not None:
            results: list[TopicError | None] = [refusal] * len(entries)
        else:
            is_dry = request.validate_only
            works = (self._alter(change, audit, is_dry=is_dry) for change in _checked_all(entries))
            results = await _altered(works, None if is_dry else self._table)
        rows = [
            answer(
                _AlteredEntity,
                error,
                entity=[
                    _AlteredEntity.EntityData(
                        entity_type=entity_data.entity_type, entity_name=entity_data.entity_name
                    )
                    for entity_data in entry.entity
                ],
            )
            for entry, error in zip(entries, results, strict=True)
        ]
        return answer(AlterClientQuotasResponse, entries=rows)

    async def _alter(self, change: _Change | TopicError, audit: _Audit, *, is_dry: bool) -> None:
        if isinstance(change, TopicError):
            audit.refused(change)
            raise change
        entity, changes = change
        if is_dry:
            if any(value is not None for value in changes.values()):
                await _stored(self._quotas.check_room(entity))
            return
        error = await error_of(_stored(self._quotas.alter(entity, changes)))
        values = {key.value: value for key, value in changes.items()}
        audit.done(error, entity=entity.text, values=values)
        if error is not None:
            raise error


def _checked_all(entries: list[_Entry]) -> list[_Change | TopicError]:
    """Return the change of each entry, or why it is refused."""
    changes: list[_Change | TopicError] = []
    for entry in entries:
        try:
            changes.append(_checked(entry))
        except InvalidQuotaError as error:
            changes.append(_translated(error))
    counts = Counter(change.entity for change in changes if isinstance(change, _Change))
    return [
        _translated(
            InvalidQuotaError(
                f"the request alters {change.entity.text} twice: alter each entity once"
            )
        )
        if isinstance(change, _Change) and counts[change.entity] > 1
        else change
        for change in changes
    ]


def _checked(entry: _Entry) -> _Change:
    """Return the change of one entry. Raises InvalidQuotaError."""
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    changes: dict[QuotaKey, float | None] = {}
    seen: dict[str, None] = {}
    for op in entry.ops:
        if op.key in seen:
            raise InvalidQuotaError(f"the key {op.key!r} is altered twice: alter each key once")
        seen[op.key] = None
        if not op.remove:
            changes[check_change(entity, op.key, op.value)] = op.value
        else:  # a value that the entity cannot have is gone already, as in Kafka
            changes.update(dict.fromkeys(key for key in QuotaKey if key == op.key))
    return _Change(entity, changes)


# -- what both share -----------------------------------------------------------------------------


async def _altered(
    works: Iterable[Awaitable[None]], table: UserTable | QuotaTable | None
) -> list[TopicError | None]:
    """Do alterations, some at a time; return why each is refused. The table of what they alter
    shows them then.
    """
    results: list[TopicError | None] = []
    rest = iter(works)
    while some := list(islice(rest, CHANGES_AT_ONCE_MAX)):
        results += await asyncio.gather(*map(error_of, some))
    if table is not None:
        with contextlib.suppress(MetadataError):  # the table follows the changes in any case
            await table.refresh()
    return results


async def _stored(change: Awaitable[object]) -> None:
    """Wait for a change of the metadata. Raises TopicError."""
    try:
        await change
    except MetadataError as error:
        raise _translated(error) from error


def _translated(error: MetadataError) -> TopicError:
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return TopicError(next(codes, ErrorCode.UNKNOWN_SERVER_ERROR), str(error))


def _too_many(count: int, what: str) -> TopicError | None:
    if count <= ALTERED_MAX:
        return None
    text = f"{count} {what} are altered at once: alter at most {ALTERED_MAX}"
    return TopicError(ErrorCode.INVALID_REQUEST, text)
