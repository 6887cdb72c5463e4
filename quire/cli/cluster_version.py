"""`quire cluster version`: the version of each server, and whether an upgrade is complete.

Leaves the order of versions to `quire.operate.server_versions`.
"""

import argparse

from ledger_client.cluster_access import Cluster, open_cluster
from metadata.brokers.broker_registration import BrokerRegistration
from metadata.brokers.broker_registry import BrokerDirectory
from metadata.registry.registration import BookieRegistration
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.fields import Json
from quire.operate.server_versions import ServerVersion, oldest_build, upgrade_sentence

API_SHOWN = "Fetch"
"""API whose versions a broker's line shows; `-o json` lists all."""


async def show_versions(arguments: argparse.Namespace, output: Output) -> int:
    """Print each server that is up, with its version and what it speaks."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        bookies = sorted(cluster.directory.bookies.values(), key=lambda each: each.bookie_id)
        brokers = await _brokers(cluster)
    servers = [_of_bookie(each) for each in bookies]
    rows: list[dict[str, Json]] = [
        {**_row(server), "wire_versions": list(each.wire_versions)}
        for server, each in zip(servers, bookies, strict=True)
    ]
    for broker in brokers:
        server = _of_broker(broker)
        servers.append(server)
        apis: dict[str, Json] = {each.name: [each.low, each.high] for each in broker.apis}
        rows.append({**_row(server), "api_versions": apis})
    oldest = oldest_build(servers)
    sentence = upgrade_sentence(servers)
    if output.as_json:
        output.record({"state": sentence, "oldest": oldest, "servers": rows})
    else:
        output.line(sentence)
        if rows:
            with output.listing("kind", "id", "build", "speaks") as listing:
                for row in rows:
                    listing.add(row)
    is_complete = all(each.build == oldest for each in servers)
    return ExitCode.DONE if is_complete else ExitCode.FINDINGS


async def _brokers(cluster: Cluster) -> list[BrokerRegistration]:
    directory = BrokerDirectory(cluster.store, cluster.rng)
    await directory.start()
    try:
        return [directory.brokers[each] for each in sorted(directory.brokers)]
    finally:
        await directory.aclose()


def _of_bookie(each: BookieRegistration) -> ServerVersion:
    low, high = each.wire_versions
    return ServerVersion("bookie", each.bookie_id, each.build, f"{low}-{high}")


def _of_broker(each: BrokerRegistration) -> ServerVersion:
    shown = [f"{api.name} {api.low}-{api.high}" for api in each.apis if api.name == API_SHOWN]
    return ServerVersion("broker", str(each.broker_id), each.build, ", ".join(shown))


def _row(server: ServerVersion) -> dict[str, Json]:
    return {
        "kind": server.kind,
        "id": server.name,
        "build": server.build,
        "speaks": server.wire,
    }
