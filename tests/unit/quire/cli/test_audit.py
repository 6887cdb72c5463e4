"""Commands that change the metadata themselves, and their records in the audit trail."""

import argparse
import io
from collections.abc import Iterator

import pytest

from metadata.errors import StoreUnavailableError
from metadata.repair.settings_store import RepairSettingsStore
from metadata.security.audit_trail import AuditRecord, AuditTrail
from quire.cli.audit import recorded
from quire.cli.main import NOUNS, parser_of
from quire.cli.metadata_verbs import parser as metadata_parser
from quire.cli.output import Output
from quire.errors import CommandError, NeedsConsentError, UsageError
from tests.support.quire.memory_cluster import MemoryCluster

RECORDED = {
    "acl": ("add", "remove"),
    "bookie": ("drain", "remove", "undrain"),
    "chain": ("collect", "delete", "trim"),
    "cluster": ("forget", "init"),
    "grant": ("add", "remove"),
    "ledger": ("accept-loss", "delete", "recover", "rescue"),
    "metadata": ("accept-restore", "restore", "secure"),
    "quota": ("remove", "set"),
    "repair": ("pause", "resume", "run", "scrub", "settings", "throttle"),
    "user": ("add", "password", "remove"),
}
"""Verbs that are recorded."""
BY_SERVERS = {
    "bookie": ("accept-metadata", "readonly"),
    "topic": ("config", "create", "delete", "elect", "grow", "trim"),
}
"""Verbs that ask a server for a change, which writes it to its own audit log."""
ORDINARY = {
    "bench": ("compare", "report"),
    "bookie": (
        *("check", "compare", "dump", "entry", "format", "info", "list", "rebuild-index", "run"),
        "segments",
    ),
    "broker": ("run",),
    "chain": ("create", "list", "show"),
    "cluster": ("health", "if-lost", "report", "version"),
    "config": ("check", "show"),
    "acl": ("list",),
    "gateway": ("run",),
    "grant": ("list",),
    "ledger": ("append", "create", "export", "import", "list", "read", "show", "tail", "verify"),
    "metadata": ("audit", "check", "compare", "dump", "identity"),
    "quota": ("list",),
    "repair": ("explain", "list", "run-auditor", "run-worker", "status"),
    "spark": ("archive", "ingest", "restore", "scrub", "tail-to-table"),
    "tls": ("init",),
    "topic": ("consume", "list", "produce", "show"),
    "user": ("list", "show"),
    "zookeeper": ("run", "status"),
}
"""Verbs that change nothing, or only what their user owns."""


def verbs() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    for noun in NOUNS:
        parser = parser_of(noun)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, verb in action.choices.items():
                    yield noun, name, verb


def test_each_verb_is_recorded_or_ordinary() -> None:
    found = {(noun, name): verb.get_default("is_audited") for noun, name, verb in verbs()}
    for group, is_recorded in ((RECORDED, True), (BY_SERVERS, False), (ORDINARY, False)):
        for noun, names in group.items():
            for name in names:
                assert found.pop((noun, name)) is is_recorded, (noun, name)
    assert not found, "is it an administrative act?"


def test_the_arguments_that_say_whether_something_changes_exist() -> None:
    for noun, name, verb in verbs():
        needed = verb.get_default("audited_with")
        assert not needed or needed in {action.dest for action in verb._actions}, (noun, name)


async def records(cluster: MemoryCluster) -> list[AuditRecord]:
    return await AuditTrail(cluster.store, cluster.rng).get()


async def run(*words: str) -> str:
    """Run a verb under the recorder; return its remarks. Raises what the verb raises."""
    noun, *rest = words
    arguments = parser_of(noun).parse_args(rest)
    output = Output(as_json=False, results=io.StringIO(), remarks=(remarks := io.StringIO()))
    await recorded(arguments, output, arguments.handler(arguments, output))
    return remarks.getvalue()


async def test_a_change_is_recorded_with_its_arguments(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    await run("repair", "pause", "--for", "1h")
    (found,) = await records(memory_cluster)
    assert (found.act, found.result) == ("repair pause", "done")
    assert "3600" in found.arguments
    assert all((found.who, found.host, found.time_ms))
    _, rows = await memory_cluster.run(metadata_parser(), "audit", "-o", "json")
    assert [row["act"] for row in rows] == ["repair pause"]


async def test_arguments_are_recorded_as_they_were_written(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    await run("repair", "settings", "lost_after_s=77", "urgent_after_s=7")
    (record,) = await records(memory_cluster)
    assert record.arguments == "changes=lost_after_s=77, urgent_after_s=7"


async def test_the_address_of_the_metadata_is_not_recorded(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    address = "zk://ann:secret@nowhere:1/cluster"
    await run("repair", "resume", "--metadata", address)
    (found,) = await records(memory_cluster)
    assert "secret" not in str(found)


async def test_a_failure_is_recorded_and_wrong_usage_is_not(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise CommandError("it is refused")

    await memory_cluster.create("a")
    with monkeypatch.context() as patch:
        patch.setattr(RepairSettingsStore, "change", fail)
        with pytest.raises(CommandError):
            await run("repair", "pause", "--for", "1h")
    with pytest.raises(UsageError):
        await run("repair", "settings", "no_such")
    with pytest.raises(NeedsConsentError):
        await run("acl", "remove", "--topic", "a", "--allow", "User:ann")
    assert [record.result for record in await records(memory_cluster)] == ["failed: it is refused"]


class Closed(io.StringIO):
    def write(self, _text: str) -> int:  # type: ignore[explicit-override]
        raise BrokenPipeError(32, "Broken pipe")


async def test_a_change_is_recorded_as_done_if_the_reader_of_its_output_ended(
    memory_cluster: MemoryCluster,
) -> None:
    await memory_cluster.create("a")
    arguments = parser_of("repair").parse_args(["settings", "lost_after_s=77"])
    output = Output(as_json=False, results=Closed(), remarks=io.StringIO())
    await recorded(arguments, output, arguments.handler(arguments, output))
    assert isinstance(output.lost, BrokenPipeError)
    assert [record.result for record in await records(memory_cluster)] == ["done"]


async def test_a_trail_that_fails_changes_no_result(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_trail: AuditTrail, _record: AuditRecord) -> None:
        raise StoreUnavailableError("memory", "no answer")

    await memory_cluster.create("a")
    monkeypatch.setattr(AuditTrail, "add", fail)
    assert "not in the audit trail" in await run("repair", "resume")
