"""`quire acl add|list|remove`: access control lists in the metadata of the cluster.

Leaves the lists and their checks to `metadata.security`, and applying them to the brokers.

Invariant: an argument that is wrong changes nothing.
"""

import argparse
from itertools import product

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
from quire.cli.command_line import metadata_address, require_consent
from quire.cli.output import Output
from quire.errors import ExitCode, UsageError
from quire.operate.fields import Row

COLUMNS = ("resource", "pattern", "name", "permission", "principal", "host", "operation")


async def add(arguments: argparse.Namespace, output: Output) -> int:
    """Store the ACLs of all combinations of the arguments, and print them."""
    bindings = _bindings(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await AclStore(cluster.store, cluster.rng).add(bindings)
    _print(bindings, output)
    return ExitCode.DONE


async def list_acls(arguments: argparse.Namespace, output: Output) -> int:
    """Print the selected ACLs; all without arguments."""
    filters = _filters(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        found = await AclStore(cluster.store, cluster.rng).select(AclFilter())
    _print([each for each in found if any(one.selects(each) for one in filters)], output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove the selected ACLs, and print them."""
    filters = _filters(arguments)
    if filters == [AclFilter()]:
        raise UsageError(
            "no ACL is named", try_next="name a resource or a principal: quire acl remove --help"
        )
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = AclStore(cluster.store, cluster.rng)
        if not arguments.yes:
            found = await store.select(AclFilter())
            chosen = [each for each in found if any(one.selects(each) for one in filters)]
            _print(chosen, output)
            require_consent(arguments, f"remove {len(chosen)} ACLs")
        removed = await store.remove(filters)
    _print(removed, output)
    return ExitCode.DONE


def _print(bindings: list[AclBinding], output: Output) -> None:
    with output.listing(*COLUMNS) as listing:
        for each in bindings:
            listing.add(_row(each))


def _row(binding: AclBinding) -> Row:
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
    for found, what in (
        (resources, "resource is named: add --topic, --group, --transactional-id or --cluster"),
        (principals, "principal is named: add --allow User:NAME or --deny User:NAME"),
        (operations, "operation is named: add --operation"),
    ):
        if not found:
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
    known = [each.name for each in Operation if each is not Operation.ANY]
    for name in arguments.operation:
        if name not in known:
            raise UsageError(f"{name} is not an operation", try_next=f"one of {', '.join(known)}")
    return [Operation[name] for name in arguments.operation]
