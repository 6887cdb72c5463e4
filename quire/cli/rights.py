"""`quire acl`, `user`, `grant` and `quota`: who clients are, what they may do, and how much.

A user's password comes from a private file, the standard input or the environment. It is never an
argument: other users of the machine can see those.

Invariants: an argument that is wrong changes nothing; keys, salts and passwords are never printed,
nor in an error.
"""

import argparse
import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import product
from random import Random
from typing import Final

from ledger_client.cluster_access import open_cluster
from metadata.security.acl_errors import InvalidAclError
from metadata.security.acl_store import AclStore
from metadata.security.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from metadata.security.errors import InvalidQuotaError, QuotaNotFoundError
from metadata.security.grant_store import GrantStore
from metadata.security.ledger_grants import check_principal
from metadata.security.ledger_roles import LedgerGrant, parse_resource, parse_role
from metadata.security.quota_store import QuotaStore
from metadata.security.quotas import (
    EntityType,
    QuotaEntity,
    QuotaKey,
    QuotaValues,
    check_change,
    entity_of,
)
from metadata.security.user_store import UserStore
from metadata.security.users import UserRecord, check_user_name
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.cli.rights_verbs import PASSWORD_VARIABLE
from quire.errors import ExitCode, UsageError
from quire.identity.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    new_credential,
)
from quire.identity.secret_files import SECRET_BYTES_MAX, read_secret
from quire.operate.fields import Row

ACL_COLUMNS = ("resource", "pattern", "name", "permission", "principal", "host", "operation")


async def add_acls(arguments: argparse.Namespace, output: Output) -> int:
    """Store the ACLs of all combinations of the arguments, and print them."""
    bindings = _bindings(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await AclStore(cluster.store, cluster.rng).add(bindings)
    _print_acls(bindings, output)
    return ExitCode.DONE


async def list_acls(arguments: argparse.Namespace, output: Output) -> int:
    """Print the selected ACLs; all without arguments."""
    filters = _filters(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        bindings = await AclStore(cluster.store, cluster.rng).select(AclFilter())
    _print_acls([acl for acl in bindings if any(one.selects(acl) for one in filters)], output)
    return ExitCode.DONE


async def remove_acls(arguments: argparse.Namespace, output: Output) -> int:
    """Remove the selected ACLs, and print them."""
    filters = _filters(arguments)
    if filters == [AclFilter()]:
        raise UsageError(
            "no ACL is named",
            try_next="name a resource or a principal: quire acl remove --help",
        )
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = AclStore(cluster.store, cluster.rng)
        if not arguments.yes:
            bindings = await store.select(AclFilter())
            chosen = [acl for acl in bindings if any(one.selects(acl) for one in filters)]
            _print_acls(chosen, output)
            require_consent(arguments, f"remove {len(chosen)} ACLs")
        removed = await store.remove(filters)
    _print_acls(removed, output)
    return ExitCode.DONE


def _print_acls(bindings: list[AclBinding], output: Output) -> None:
    output.table((_acl_row(binding) for binding in bindings), *ACL_COLUMNS)


def _acl_row(binding: AclBinding) -> Row:
    return {
        "resource": binding.resource_type.name,
        "pattern": binding.pattern_type.name,
        "name": binding.name,
        "permission": binding.permission.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
    }


def _bindings(arguments: argparse.Namespace) -> list[AclBinding]:
    """Return all combinations of the arguments. Raises UsageError."""
    resources, principals = _resources(arguments), _principals(arguments)
    operations = _operations(arguments)
    for given, what in (
        (
            resources,
            "resource is named: add --topic, --group, --transactional-id or --cluster",
        ),
        (principals, "principal is named: add --allow User:NAME or --deny User:NAME"),
        (operations, "operation is named: add --operation"),
    ):
        if not given:
            raise UsageError(f"no {what}", try_next="quire acl add --help")
    bindings = []
    for (kind, name), (permission, principal), operation in product(
        resources, principals, operations
    ):
        is_prefix = arguments.prefixed and kind is not ResourceType.CLUSTER
        pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
        host = arguments.host or ANY_NAME
        binding = AclBinding(kind, pattern, name, principal, host, operation, permission)
        try:
            check_binding(binding)
        except InvalidAclError as error:
            raise UsageError(str(error), try_next="quire acl add --help") from error
        bindings.append(binding)
    return bindings


def _filters(arguments: argparse.Namespace) -> list[AclFilter]:
    """Return the filters of all combinations of the arguments. Raises UsageError."""
    pattern = PatternType[arguments.pattern.upper()]
    resources: list[tuple[ResourceType, str | None]] = [*_resources(arguments)]
    principals: list[tuple[Permission, str | None]] = [*_principals(arguments)]
    return [
        AclFilter(kind, pattern, name, principal, arguments.host, operation, permission)
        for (kind, name), (permission, principal), operation in product(
            resources or [(ResourceType.ANY, None)],
            principals or [(Permission.ANY, None)],
            _operations(arguments) or [Operation.ANY],
        )
    ]


def _resources(arguments: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    kinds = (
        (ResourceType.TOPIC, arguments.topic),
        (ResourceType.GROUP, arguments.group),
        (ResourceType.TRANSACTIONAL_ID, arguments.transactional_id),
        (ResourceType.CLUSTER, [CLUSTER_NAME] if arguments.cluster else []),
    )
    return [(kind, name) for kind, names in kinds for name in names]


def _principals(arguments: argparse.Namespace) -> list[tuple[Permission, str]]:
    kinds = ((Permission.ALLOW, arguments.allow), (Permission.DENY, arguments.deny))
    return [(permission, name) for permission, names in kinds for name in names]


def _operations(arguments: argparse.Namespace) -> list[Operation]:
    known = [operation.name for operation in Operation if operation is not Operation.ANY]
    for name in arguments.operation:
        if name not in known:
            raise UsageError(f"{name} is not an operation", try_next=f"one of {', '.join(known)}")
    return [Operation[name] for name in arguments.operation]


STANDARD_INPUT: Final = "-"
SEE_HELP: Final = "quire user add --help"

_REFUSED_CATEGORIES: Final = frozenset(("Cc", "Cs"))


def read_password(arguments: argparse.Namespace) -> str:
    """Return the password of a new or changed user. Raises UsageError, SecretError."""
    path: str | None = arguments.password_file
    if path is None:
        return _checked_password(
            os.environ.get(PASSWORD_VARIABLE), f"the variable {PASSWORD_VARIABLE}"
        )
    if path == STANDARD_INPUT:
        return _checked_password(_from_standard_input(), "the standard input")
    return _checked_password(read_secret(path), f"the file {path}")


def _from_standard_input() -> str:
    if sys.stdin.isatty():
        raise UsageError(
            "the standard input is a terminal, which would show the password",
            try_next="--password-file FILE, or a pipe",
        )
    data = sys.stdin.buffer.read(SECRET_BYTES_MAX + 1)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(
            f"the standard input is not UTF-8 text, or has more than {SECRET_BYTES_MAX} B",
            try_next=SEE_HELP,
        ) from None


def _checked_password(password: str | None, source: str) -> str:
    if password is None:
        raise UsageError(
            f"no password is given: neither --password-file nor {PASSWORD_VARIABLE} is set",
            try_next="--password-file FILE",
        )
    if not password:
        raise UsageError(f"the password in {source} is empty", try_next=SEE_HELP)
    if any(unicodedata.category(character) in _REFUSED_CATEGORIES for character in password):
        raise UsageError(
            f"the password in {source} has a control character, or more than one line",
            try_next=SEE_HELP,
        )
    if len(password.encode()) > SECRET_BYTES_MAX:
        raise UsageError(
            f"the password in {source} has more than {SECRET_BYTES_MAX} B", try_next=SEE_HELP
        )
    return password


async def add_user(arguments: argparse.Namespace, output: Output) -> int:
    """Create a user."""
    name, password = check_user_name(arguments.user), read_password(arguments)
    mechanisms = _chosen_mechanisms(arguments) or tuple(ScramMechanism)
    async with open_cluster(metadata_address(arguments)) as cluster:
        made = _credentials(mechanisms, password, arguments.iterations, cluster.rng)
        await UserStore(cluster.store, cluster.rng).add(name, made)
    output.record({"user": name, "mechanisms": [mechanism.value for mechanism in mechanisms]})
    return ExitCode.DONE


async def change_password(arguments: argparse.Namespace, output: Output) -> int:
    """Replace all credentials of a user."""
    name, password = check_user_name(arguments.user), read_password(arguments)
    chosen = _chosen_mechanisms(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:

        def credentials_of(user: UserRecord) -> Iterable[ScramCredential]:
            mechanisms = chosen or user.mechanisms
            return _credentials(mechanisms, password, arguments.iterations, cluster.rng)

        user = await UserStore(cluster.store, cluster.rng).replace(name, credentials_of)
    output.record(_user_row(user))
    return ExitCode.DONE


async def remove_user(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a user."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        await UserStore(cluster.store, cluster.rng).remove(arguments.user)
    output.record({"user": arguments.user, "removed": True})
    return ExitCode.DONE


async def list_users(arguments: argparse.Namespace, output: Output) -> int:
    """List all users and their mechanisms."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        with output.listing("user", "mechanisms") as listing:
            async for page in UserStore(cluster.store, cluster.rng).pages():
                for user in page:
                    listing.add(_user_row(user))
    return ExitCode.DONE


async def show_user(arguments: argparse.Namespace, output: Output) -> int:
    """Show the mechanisms and iterations of a user."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        user = await UserStore(cluster.store, cluster.rng).get(arguments.user)
    output.record(
        {
            "user": user.name,
            "iterations": {login.mechanism.value: login.iterations for login in user.credentials},
        }
    )
    return ExitCode.DONE


def _chosen_mechanisms(arguments: argparse.Namespace) -> tuple[ScramMechanism, ...]:
    """Return the mechanisms that the command names, in their order; none if it names none."""
    named: list[str] = arguments.mechanism or []
    return tuple(mechanism for mechanism in ScramMechanism if mechanism.value in named)


def _credentials(
    mechanisms: Iterable[ScramMechanism], password: str, iterations: int, rng: Random
) -> list[ScramCredential]:
    return [new_credential(mechanism, password, rng, iterations) for mechanism in mechanisms]


def _user_row(user: UserRecord) -> Row:
    return {"user": user.name, "mechanisms": [mechanism.value for mechanism in user.mechanisms]}


async def add_grant(arguments: argparse.Namespace, output: Output) -> int:
    """Give a principal a role on ledgers."""
    principal, grant = check_principal(arguments.principal), _grant_of(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await GrantStore(cluster.store, cluster.rng).add(principal, grant)
    output.record(_grant_row(principal, grant))
    return ExitCode.DONE


async def remove_grant(arguments: argparse.Namespace, output: Output) -> int:
    """Take a role on ledgers away."""
    principal, grant = check_principal(arguments.principal), _grant_of(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await GrantStore(cluster.store, cluster.rng).remove(principal, grant)
    output.record({**_grant_row(principal, grant), "removed": True})
    return ExitCode.DONE


async def list_grants(arguments: argparse.Namespace, output: Output) -> int:
    """List the roles on ledgers, of all principals or of one."""
    wanted: str | None = arguments.principal
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = GrantStore(cluster.store, cluster.rng)
        with output.listing("principal", "role", "ledgers") as listing:
            if wanted is not None:
                for grant in sorted(await store.get(wanted)):
                    listing.add(_grant_row(wanted, grant))
                return ExitCode.DONE
            async for page in store.pages():
                for record in page:
                    for grant in record.grants:
                        listing.add(_grant_row(record.principal, grant))
    return ExitCode.DONE


def _grant_of(arguments: argparse.Namespace) -> LedgerGrant:
    return LedgerGrant(parse_role(arguments.role), parse_resource(arguments.resource))


def _grant_row(principal: str, grant: LedgerGrant) -> Row:
    return {"principal": principal, "role": str(grant.role), "ledgers": grant.resource.text}


QUOTA_COLUMNS = (*(kind.value for kind in EntityType), "key", "value")
DEFAULT_TEXT = "<default>"
"""What a table shows for a default, as Kafka's tools do; no JSON has it."""


async def set_quota(arguments: argparse.Namespace, output: Output) -> int:
    """Set values of a quota, and print all of them."""
    entity = entity_of(_entity_names(arguments))
    changes = dict(_change_of(entity, text) for text in arguments.values)
    if len(changes) < len(arguments.values):
        raise InvalidQuotaError("a key is given twice: give each key once")
    async with open_cluster(metadata_address(arguments)) as cluster:
        values = await QuotaStore(cluster.store, cluster.rng).alter(entity, changes)
    _print_quotas([(entity, values)], output)
    return ExitCode.DONE


async def list_quotas(arguments: argparse.Namespace, output: Output) -> int:
    """Print all quotas, or the one that is named."""
    names = _entity_names(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = QuotaStore(cluster.store, cluster.rng)
        if names:
            entity = entity_of(names)
            _print_quotas([(entity, await store.get(entity))], output)
        else:
            rows = [(quota.entity, quota.values) async for page in store.pages() for quota in page]
            _print_quotas(rows, output)
    return ExitCode.DONE


async def remove_quota(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a quota, or values of it, and print what is removed."""
    entity = entity_of(_entity_names(arguments))
    wanted = [_key_of(entity, word) for word in arguments.keys] or list(QuotaKey)
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = QuotaStore(cluster.store, cluster.rng)
        present = await store.get(entity)
        chosen = {key: value for key, value in present.items() if key in wanted}
        if not chosen:
            raise QuotaNotFoundError(entity.text)
        if not arguments.yes:
            _print_quotas([(entity, chosen)], output)
            require_consent(arguments, f"remove {len(chosen)} values of {entity.text}")
        await store.alter(entity, dict.fromkeys(wanted))
    _print_quotas([(entity, chosen)], output)
    return ExitCode.DONE


def _entity_names(arguments: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Return the types and names of the arguments; None is the default."""
    names: list[tuple[str, str | None]] = []
    for kind in EntityType:
        name: str | None = getattr(arguments, f"named_{kind.name}")
        if name is not None or getattr(arguments, f"default_{kind.name}"):
            names.append((kind.value, name))
    return names


def _change_of(entity: QuotaEntity, text: str) -> tuple[QuotaKey, float]:
    """Read KEY=VALUE. Raises InvalidQuotaError."""
    key, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        raise InvalidQuotaError(f"{text!r} is not KEY=VALUE: write a number as its value") from None
    return check_change(entity, key, value), value


def _key_of(entity: QuotaEntity, word: str) -> QuotaKey:
    return check_change(entity, word, 1.0)


def _print_quotas(quotas: Sequence[tuple[QuotaEntity, QuotaValues]], output: Output) -> None:
    with output.listing(*QUOTA_COLUMNS) as listing:
        for entity, values in quotas:
            for key, value in values.items():
                listing.add(_quota_row(entity, key, value, is_json=output.as_json))


def _quota_row(entity: QuotaEntity, key: QuotaKey, value: float, *, is_json: bool) -> Row:
    """Return one value. In JSON the row has only the types of the entity, and null is a default."""
    number = int(value) if value.is_integer() else value
    names: dict[str, str | None] = {} if is_json else {kind.value: "" for kind in EntityType}
    for kind, name in entity.names:
        names[kind.value] = name if is_json or name is not None else DEFAULT_TEXT
    return {**names, "key": key.value, "value": number}
