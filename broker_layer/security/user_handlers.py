"""Handlers of DescribeUserScramCredentials and AlterUserScramCredentials.

Leaves users to `metadata.security`, and the decision whether a client may call them to the
authorization of requests.

Invariants: all alterations of one user in a request are one write: either all of them are applied
or none; deletions come before upsertions. No answer and no line of the log holds a key, a salt or a
salted password. A request that changes passwords is refused where others could have read it.

Source: KIP-554.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker_layer.errors import TopicError
from broker_layer.handlers import Handler, RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ApiMessage,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.errors import MetadataError, OutcomeUnknownError, StoreUnavailableError
from metadata.security.errors import (
    CredentialNotFoundError,
    InvalidUserNameError,
    TooManyUsersError,
)
from metadata.security.user_store import UserStore, UserTable
from metadata.security.users import UserRecord, check_user_name
from quire.identity.sasl.credentials import ScramCredential, ScramMechanism, credential_of
from quire.server.audit_log import AuditLog

DESCRIBED_MAX: Final = 5_000
"""Maximum number of users in one description: encoding it takes about 0.1 s."""
ALTERED_MAX: Final = 1_000
"""Maximum number of users that one request alters."""
CHANGES_AT_ONCE_MAX: Final = 32
"""Maximum number of users of one request whose changes are under way at the same time."""

MECHANISMS: Final = {1: ScramMechanism.SHA_256, 2: ScramMechanism.SHA_512}
"""Mechanisms by their numbers in Kafka's messages."""
NOT_PRIVATE: Final = (
    "this connection has no TLS and is not from the broker's machine: connect to a listener with "
    "TLS, and use another password, because others may have read this one"
)

_ACT: Final = "AlterUserScramCredentials"
_NUMBERS: Final = {mechanism: number for number, mechanism in MECHANISMS.items()}
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class _Result(NamedTuple):
    code: ErrorCode
    text: str | None


@dataclass(slots=True)
class _Alterations:
    """What a request alters of one user."""

    deletions: list[_Deletion] = field(default_factory=list)
    upsertions: list[_Upsertion] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class UserHandlers:
    """Handlers of the APIs of users for one broker. The creator of each part also closes it."""

    _users: UserStore
    _table: UserTable
    _audit: AuditLog

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each API key."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    # -- describing ------------------------------------------------------------------------------

    async def describe(self, request: ApiMessage, _: RequestContext) -> ApiMessage:
        """Answer DescribeUserScramCredentials: mechanisms and iterations; no name requests all."""
        assert isinstance(request, DescribeUserScramCredentialsRequest), "selected by the API"
        asked = [each.name for each in request.users or ()]
        try:
            await self._table.refresh()
        except MetadataError as error:
            return _description(_result_of(error), [])
        if len(asked or self._table.users) > DESCRIBED_MAX:
            text = f"at most {DESCRIBED_MAX} users are described at once: name fewer users"
            return _description(_Result(ErrorCode.INVALID_REQUEST, text), [])
        if not asked:
            rows = [_described(user) for _, user in sorted(self._table.users.items())]
            return _description(_Result(ErrorCode.NONE, None), rows)
        rows = [self._named(name, count) for name, count in Counter(asked).items()]
        return _description(_Result(ErrorCode.NONE, None), rows)

    def _named(self, name: str, count: int) -> _Described:
        user = self._table.users.get(name)
        if count > 1:
            text = f"{name!r} is named more than once: name each user once"
            return _not_described(name, ErrorCode.DUPLICATE_RESOURCE, text)
        if user is None:
            return _not_described(name, ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
        return _described(user)

    # -- altering --------------------------------------------------------------------------------

    async def alter(self, request: ApiMessage, context: RequestContext) -> ApiMessage:
        """Answer AlterUserScramCredentials: one result for each user, in the order in which the
        request names them.
        """
        assert isinstance(request, AlterUserScramCredentialsRequest), "selected by the API"
        asked: dict[str, _Alterations] = {}
        for deletion in request.deletions:
            asked.setdefault(deletion.name, _Alterations()).deletions.append(deletion)
        for upsertion in request.upsertions:
            asked.setdefault(upsertion.name, _Alterations()).upsertions.append(upsertion)
        results = await self._alter_all(asked, context)
        rows = [
            _Altered(user=name, error_code=code, error_message=text)
            for name, (code, text) in results.items()
        ]
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=rows)

    async def _alter_all(
        self, asked: dict[str, _Alterations], context: RequestContext
    ) -> dict[str, _Result]:
        refusal: _Result | None = None
        if len(asked) > ALTERED_MAX:
            text = f"{len(asked)} users are altered at once: alter at most {ALTERED_MAX}"
            refusal = _Result(ErrorCode.INVALID_REQUEST, text)
        if not context.is_private:
            refusal = _Result(ErrorCode.INVALID_REQUEST, NOT_PRIVATE)
        if refusal is not None:
            self._note_refused(context, refusal, users=len(asked))
            return dict.fromkeys(asked, refusal)
        names, results = list(asked), dict[str, _Result]()
        for start in range(0, len(names), CHANGES_AT_ONCE_MAX):
            some = names[start : start + CHANGES_AT_ONCE_MAX]
            done = await asyncio.gather(*[self._alter(name, asked[name], context) for name in some])
            results.update(zip(some, done, strict=True))
        with contextlib.suppress(MetadataError):  # the table follows the changes in any case
            await self._table.refresh()
        return results

    async def _alter(
        self, name: str, alterations: _Alterations, context: RequestContext
    ) -> _Result:
        try:
            deletions, upsertions = _checked(name, alterations)
        except TopicError as error:
            result = _Result(error.code, error.text)
            self._note_refused(context, result, user=name)
            return result
        result = _Result(ErrorCode.NONE, None)
        try:
            await self._users.alter(name, deletions, upsertions)
        except MetadataError as error:
            result = _result_of(error)
        self._audit.done(
            _ACT,
            who=context.principal.text,
            peer=context.client_host,
            failed=result.code != ErrorCode.NONE,
            user=name,
            deleted=[each.value for each in deletions],
            stored=[each.mechanism.value for each in upsertions],
            error=result.code.name,
        )
        return result

    def _note_refused(self, context: RequestContext, result: _Result, **values: object) -> None:
        who, peer = context.principal.text, context.client_host
        self._audit.refused(_ACT, who=who, peer=peer, error=result.code.name, **values)


def _checked(
    name: str, alterations: _Alterations
) -> tuple[list[ScramMechanism], list[ScramCredential]]:
    """Return the deletions and the credentials of one user. Raises TopicError."""
    try:
        check_user_name(name)
    except InvalidUserNameError as error:
        raise TopicError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from error
    deletions = [_mechanism(each.mechanism) for each in alterations.deletions]
    upsertions = [_credential(each) for each in alterations.upsertions]
    named = [*deletions, *(each.mechanism for each in upsertions)]
    if len(dict.fromkeys(named)) != len(named):
        text = f"a credential of {name!r} is altered more than once: alter each once"
        raise TopicError(ErrorCode.DUPLICATE_RESOURCE, text)
    return deletions, upsertions


def _mechanism(number: int) -> ScramMechanism:
    if number not in MECHANISMS:
        known = ", ".join(f"{each} ({mechanism})" for each, mechanism in MECHANISMS.items())
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


def _result_of(error: MetadataError) -> _Result:
    match error:
        case InvalidUserNameError():
            code = ErrorCode.UNACCEPTABLE_CREDENTIAL
        case CredentialNotFoundError():
            code = ErrorCode.RESOURCE_NOT_FOUND
        case TooManyUsersError():
            code = ErrorCode.POLICY_VIOLATION
        case StoreUnavailableError() | OutcomeUnknownError():
            code = ErrorCode.REQUEST_TIMED_OUT
        case _:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
    return _Result(code, str(error))


def _described(user: UserRecord) -> _Described:
    infos = [
        _Described.CredentialInfo(mechanism=_NUMBERS[each.mechanism], iterations=each.iterations)
        for each in user.credentials
    ]
    return _Described(
        user=user.name, error_code=ErrorCode.NONE, error_message=None, credential_infos=infos
    )


def _not_described(name: str, code: ErrorCode, text: str) -> _Described:
    return _Described(user=name, error_code=code, error_message=text, credential_infos=[])


def _description(result: _Result, rows: Sequence[_Described]) -> ApiMessage:
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=result.code,
        error_message=result.text,
        results=list(rows),
    )
