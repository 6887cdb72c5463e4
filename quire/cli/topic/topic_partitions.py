"""Rows about the partitions of a topic: leader, contents, and the reason if one is not served.

Leaves the cluster's view to the Metadata API, and what only a leader knows to its admin server.
"""

import asyncio
from collections.abc import Mapping

from quire.cli.topic.topic_access import BrokerAccess
from quire.cli.topic.topic_lookup import ShownTopic
from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminApiError, Json, get_json

Rows = dict[int, Mapping[str, Json]]


async def partition_rows(topic: ShownTopic, brokers: BrokerAccess) -> list[dict[str, Json]]:
    """Return a row for each partition, in order; the state of a healthy one is "served"."""
    reports = await _reports_of_leaders(topic, brokers)
    return [
        _row(partition, reports.get(partition.partition_index, {}))
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]


def _row(
    partition: ShownTopic.MetadataResponsePartition, report: Mapping[str, Json]
) -> dict[str, Json]:
    row: dict[str, Json] = {
        "partition": partition.partition_index,
        "leader": partition.leader_id if partition.leader_id >= 0 else None,
        "epoch": partition.leader_epoch,
        "replicas": list(partition.replica_nodes),
        "in_sync": list(partition.isr_nodes),
        "start": _known(report.get("log_start_offset")),
        "end": _known(report.get("high_watermark")),
        "bytes": _known(report.get("size_bytes")),
    }
    row["short_ledgers"] = _short_ledgers(report.get("short_ledgers"))
    row["short_ledger_count"] = _known(report.get("short_ledger_count"))
    row["short_bytes"] = _known(report.get("short_bytes"))
    missing = report.get("missing")
    if missing:
        row["state"] = f"not served for {report.get('since_s')} s: {missing}"
    elif partition.leader_id < 0:
        row["state"] = "no broker leads it"
    elif row["short_ledgers"]:
        row["state"] = f"{row['short_ledger_count']} ledgers lack copies"
    elif len(partition.isr_nodes) < len(partition.replica_nodes):
        row["state"] = "lacks replicas in sync"
    else:
        row["state"] = "served"
    return row


def _short_ledgers(reported: Json) -> list[Json]:
    """Return the ended ledgers that lack copies, as a leader reports them."""
    return [
        {
            "ledger": each.get("ledger_id"),
            "entries": each.get("entry_count"),
            "bytes": each.get("size_bytes"),
            "why": each.get("why"),
        }
        for each in (reported if isinstance(reported, list) else ())
        if isinstance(each, Mapping)
    ]


def _known(number: Json) -> Json:
    return number if isinstance(number, int) and number >= 0 else None


async def _reports_of_leaders(topic: ShownTopic, brokers: BrokerAccess) -> Rows:
    urls = [each.admin_url for each in brokers.registrations if each.admin_url]
    answers = await asyncio.gather(*[_partitions_of(url, brokers.identity) for url in urls])
    leaders = {each.partition_index: each.leader_epoch for each in topic.partitions}
    found: Rows = {}
    for row in (row for answer in answers for row in answer):
        partition = row.get("partition")
        is_newest = isinstance(partition, int) and row.get("leader_epoch") == leaders.get(partition)
        if row.get("topic") == topic.name and isinstance(partition, int) and is_newest:
            found[partition] = row
    return found


async def _partitions_of(url: str, identity: ClientFile) -> list[Mapping[str, Json]]:
    try:
        answer = await get_json(f"{url}/api/v1/partitions", identity)
    except AdminApiError:
        return []
    rows = answer.get("partitions") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        return []
    return [row for row in rows if isinstance(row, Mapping)]
