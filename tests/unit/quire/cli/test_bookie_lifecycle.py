"""Bookies are drained, used again and removed, and a dry run changes nothing."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from ledger_client.cluster_access import open_cluster
from metadata.errors import InvalidLifecycleChangeError, RestoreUnacceptedError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.paths import RESTORE, ledger_path
from metadata.registry.positions import NO_POSITION, PositionRecord, PositionStore
from metadata.registry.registration import LIMBO_FEATURE
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.restore.restore_record import (
    RESTORE_NODE,
    RestoreRecord,
    RestoreState,
    accept_restore,
)
from quire.cli.bookie_verbs import parser
from quire.errors import CommandError, ExitCode
from quire.operate.bookie_changes import NoSuchBookieError, StillNamedError, records_of, remove_all
from tests.support.quire.memory_cluster import FREE_BYTES, MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger

A = BookieId("a")


async def state_of(cluster: MemoryCluster, name: str) -> Lifecycle:
    return (await cluster.lifecycles.get(BookieId(name))).state


async def test_a_bookie_is_drained_and_used_again(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b")
    code, row = await cluster.run(parser(), "drain", "a", "--reason", "new disk", "-o", "json")
    assert code == ExitCode.DONE
    assert (row["id"], row["lifecycle"], row["changed"]) == ("a", "draining", True)
    record = await cluster.lifecycles.get(A)
    assert (record.state, record.reason) == (Lifecycle.DRAINING, "new disk")
    assert row["since_ms"] == record.since_ms > 0
    _, again = await cluster.run(parser(), "drain", "a", "-o", "json")
    assert again == row | {"changed": False}
    code, row = await cluster.run(parser(), "undrain", "a", "-o", "json")
    assert (code, row["lifecycle"]) == (ExitCode.DONE, "active")
    code, row = await cluster.run(parser(), "undrain", "b", "-o", "json")
    assert (code, row["changed"]) == (ExitCode.DONE, False)


@pytest.mark.parametrize("verb", ["drain", "undrain", "remove"])
async def test_an_unknown_bookie_is_not_changed(memory_cluster: MemoryCluster, verb: str) -> None:
    await memory_cluster.create("a")
    for name in ("b", "No Such Bookie"):
        with pytest.raises(NoSuchBookieError):
            await memory_cluster.run(parser(), verb, name, "-o", "json")


async def test_a_bookie_is_removed_when_nothing_names_it(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c", "d")
    await cluster.add(closed_ledger("bcd", ledger_id=1), closed_ledger("abc", ledger_id=2))
    await cluster.set_state("a", Lifecycle.DRAINING, Lifecycle.DRAINED)
    with pytest.raises(StillNamedError, match="ledgers that name it: 1, for example 2; nothing"):
        await cluster.run(parser(), "remove", "a", "-o", "json")
    assert await state_of(cluster, "a") is Lifecycle.DRAINED
    code, row = await cluster.run(parser(), "remove", "a", "--dry-run", "-o", "json")
    assert (code, row["ledgers_naming_it"], row["is_removable"]) == (ExitCode.FINDINGS, 1, False)
    assert row["first_ledgers"] == [2]
    await cluster.ledgers.delete(LedgerId(2))
    code, row = await cluster.run(parser(), "remove", "a", "--dry-run", "-o", "json")
    assert (code, row["is_removable"]) == (ExitCode.DONE, True)
    assert await state_of(cluster, "a") is Lifecycle.DRAINED
    code, row = await cluster.run(parser(), "remove", "a", "-o", "json")
    assert (code, row["lifecycle"], row["changed"]) == (ExitCode.DONE, "removed", True)
    code, row = await cluster.run(parser(), "remove", "a", "-o", "json")
    assert (code, row["lifecycle"], row["changed"]) == (ExitCode.DONE, "removed", False)
    for verb in ("drain", "undrain"):
        with pytest.raises(InvalidLifecycleChangeError, match="an id is never used again"):
            await cluster.run(parser(), verb, "a", "-o", "json")


@pytest.mark.parametrize("states", [(), (Lifecycle.DRAINING,)])
async def test_a_bookie_in_use_is_not_removed(
    memory_cluster: MemoryCluster, states: tuple[Lifecycle, ...]
) -> None:
    await memory_cluster.create("a")
    await memory_cluster.set_state("a", *states)
    with pytest.raises(InvalidLifecycleChangeError, match="cannot become removed"):
        await memory_cluster.run(parser(), "remove", "a", "-o", "json")
    code, row = await memory_cluster.run(parser(), "remove", "a", "--dry-run", "-o", "json")
    assert (code, row["is_removable"]) == (ExitCode.FINDINGS, False)


async def test_a_lost_bookie_is_removed_but_not_used_again(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("b")
    await cluster.format("a")
    await cluster.set_state("a", Lifecycle.LOST)
    with pytest.raises(CommandError, match=r"is lost \(for a test\), not drained: start it again"):
        await cluster.run(parser(), "undrain", "a", "-o", "json")
    code, row = await cluster.run(parser(), "remove", "a", "-o", "json")
    assert (code, row["lifecycle"]) == (ExitCode.DONE, "removed")


async def test_a_bookie_is_not_removed_while_a_ledger_cannot_be_read(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("b")
    await cluster.format("a")
    await cluster.set_state("a", Lifecycle.LOST)
    await cluster.store.create(ledger_path(LedgerId(5)), b"of a newer release")
    with pytest.raises(StillNamedError, match="may name it: 1, for example 5; nothing"):
        await cluster.run(parser(), "remove", "a", "-o", "json")
    code, _ = await cluster.run(parser(), "remove", "a", "--dry-run", "-o", "json")
    assert code == ExitCode.FINDINGS
    assert await state_of(cluster, "a") is Lifecycle.LOST


async def test_a_bookie_in_limbo_is_removed_and_never_used_again(
    memory_cluster: MemoryCluster,
) -> None:
    """Rule 9.13."""
    cluster = memory_cluster
    await cluster.create("b")
    await cluster.format("a")
    await cluster.start("a", writable=False, features=(LIMBO_FEATURE,))
    await cluster.set_state("a", Lifecycle.LIMBO)
    with pytest.raises(InvalidLifecycleChangeError, match="wait until its copies are moved"):
        await cluster.run(parser(), "remove", "a", "-o", "json")
    code, row = await cluster.run(parser(), "info", "a", "-o", "json")
    assert (code, row["lifecycle"]) == (0, "limbo")
    assert row["next"].endswith("once it is drained: quire bookie remove a")
    for state in (Lifecycle.LIMBO, Lifecycle.DRAINED):
        await cluster.set_state("a", state)
        with pytest.raises(CommandError, match="bookie a is in limbo: it may have lost entries"):
            await cluster.run(parser(), "undrain", "a", "-o", "json")
    code, row = await cluster.run(parser(), "remove", "a", "-o", "json")
    assert (code, row["lifecycle"]) == (ExitCode.DONE, "removed")


async def plan_of(cluster: MemoryCluster) -> tuple[int, Any]:
    return await cluster.run(parser(), "drain", "a", "--dry-run", "-o", "json")


async def test_a_dry_run_says_what_would_move(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c", "d")
    size = 400_000_000
    await cluster.add(
        closed_ledger("abc", ledger_id=1, length=size),
        closed_ledger("bcd", ledger_id=2),
        open_ledger("abd", ledger_id=3),
    )
    code, row = await plan_of(cluster)
    assert code == ExitCode.DONE
    assert (row["ledgers"], row["open_ledgers"], row["bytes"]) == (2, 1, size)
    assert [(each["target"], each["bytes"]) for each in row["targets"]] == [
        ("b", 0),
        ("c", 0),
        ("d", size),
    ]
    assert [each["free_bytes"] for each in row["targets"]] == [FREE_BYTES] * 3
    assert (row["estimate_s"], row["targets_that_would_be_full"]) == (16, [])
    assert (row["blocked_ledgers"], row["blocked"]) == (0, {})
    assert await cluster.lifecycles.get(A) == UNCHANGED
    await cluster.set_state("d", Lifecycle.DRAINING)
    code, row = await plan_of(cluster)
    assert code == ExitCode.FINDINGS
    assert [each["target"] for each in row["targets"]] == ["b", "c"]
    assert row["blocked"] == {"needs 3 other writable bookies, has 2": 1}
    _, text = await cluster.text(parser(), "drain", "a", "--dry-run")
    assert re.search(r"^bytes +381.5 MiB$", text, re.MULTILINE)
    assert re.search(r"^estimate +16 s$", text, re.MULTILINE)
    assert re.search(r"^TARGET +BYTES +FREE BYTES +WOULD BE FULL$", text, re.MULTILINE)


async def test_a_dry_run_finds_too_little_room(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a", "b", "c", "d")
    await memory_cluster.add(closed_ledger("abc", length=4 * FREE_BYTES))
    code, row = await plan_of(memory_cluster)
    assert (code, row["blocked_ledgers"]) == (ExitCode.FINDINGS, 0)
    assert row["targets_that_would_be_full"] == ["d"]
    assert [each["would_be_full"] for each in row["targets"]] == [False, False, True]


async def test_bookies_are_listed_with_their_states(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b")
    await cluster.format("c")
    await cluster.set_state("a", Lifecycle.DRAINING)
    await cluster.set_state("c", Lifecycle.LOST, Lifecycle.DRAINED, Lifecycle.REMOVED)
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert {row["id"]: (row["state"], row["lifecycle"]) for row in rows} == {
        "a": ("up", "draining"),
        "b": ("up", "active"),
        "c": ("down", "removed"),
    }
    code, row = await cluster.run(parser(), "info", "c", "-o", "json")
    assert (code, row["lifecycle"], row["lifecycle_reason"]) == (1, "removed", "for a test")
    code, row = await cluster.run(parser(), "info", "b", "-o", "json")
    assert (code, row["lifecycle"], row["lifecycle_reason"]) == (0, "active", None)


async def test_a_bookie_that_is_down_shows_how_it_stopped(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    record = PositionRecord(bytes(16), 5, files=(), lock="")
    for name, stored in (
        ("b", None),
        ("c", record),
        ("d", replace(record, stopped_ms=1_700_000_000_000)),
    ):
        await cluster.format(name)
        if stored is not None:
            await PositionStore(cluster.store).put(BookieId(name), stored, NO_POSITION)
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert {row["id"]: (row.get("stopped"), row.get("stopped_ms")) for row in rows} == {
        "a": (None, None),
        "b": ("never started", None),
        "c": ("not in order", None),
        "d": ("in order at 2023-11-14 22:13:20 UTC", 1_700_000_000_000),
    }
    _, text = await cluster.text(parser(), "info", "d")
    assert "in order at 2023-11-14 22:13:20 UTC" in text


async def test_several_bookies_are_drained_and_removed_by_one_command(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c", "d")
    await cluster.add(closed_ledger("acd", ledger_id=1))
    code, row = await cluster.run(parser(), "drain", "a", "b", "--dry-run", "-o", "json")
    assert (code, row["ids"]) == (ExitCode.FINDINGS, ["a", "b"])
    assert row["blocked"] == {"needs 3 other writable bookies, has 2": 1}
    with pytest.raises(NoSuchBookieError):
        await cluster.run(parser(), "drain", "a", "unknown", "-o", "json")
    assert await state_of(cluster, "a") is Lifecycle.ACTIVE, "none is changed"
    code, text = await cluster.text(parser(), "drain", "a", "b", "a", "--reason", "old")
    assert (code, text.count("draining")) == (ExitCode.DONE, 2)
    for name in ("a", "b"):
        await cluster.set_state(name, Lifecycle.DRAINED)
    with pytest.raises(StillNamedError, match="bookie a cannot be removed"):
        await cluster.run(parser(), "remove", "b", "a", "-o", "json")
    assert await state_of(cluster, "b") is Lifecycle.DRAINED
    code, text = await cluster.text(parser(), "remove", "a", "b", "--dry-run")
    assert (code, text.count("yes"), text.count("no\n")) == (ExitCode.FINDINGS, 1, 1)
    await cluster.ledgers.delete(LedgerId(1))
    code, text = await cluster.text(parser(), "remove", "a", "b")
    assert (code, text.count("removed")) == (ExitCode.DONE, 2)


async def remove_with(
    cluster: MemoryCluster, meanwhile: Callable[[], Awaitable[object]]
) -> BookieLifecycle:
    """Remove the lost bookie `a`, and do something during the pass over the ledgers."""
    await cluster.create("b", "c", "d")
    await cluster.format("a")
    await cluster.set_state("a", Lifecycle.LOST)
    await cluster.add(closed_ledger("bcd", ledger_id=1))

    async def ledgers() -> AsyncIterator[tuple[LedgerId, LedgerMetadata]]:
        assert await state_of(cluster, "a") is Lifecycle.DRAINED, "it takes no entries"
        yield LedgerId(1), (await cluster.ledgers.get(LedgerId(1)))[0]
        await meanwhile()

    async with open_cluster("zk://nowhere:1/cluster") as found:
        before = await records_of(found, ["a"])
        return (await remove_all(found, before, "test", ledgers()))[A]


async def test_a_lost_bookie_takes_no_entries_while_it_is_removed(
    memory_cluster: MemoryCluster,
) -> None:
    async def nothing() -> None:
        pass

    assert (await remove_with(memory_cluster, nothing)).state is Lifecycle.REMOVED


async def test_a_lost_bookie_that_is_back_is_not_removed(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    with pytest.raises(CommandError, match="it was lost and is back; nothing was changed"):
        await remove_with(cluster, lambda: cluster.start("a"))
    record = await cluster.lifecycles.get(A)
    assert (record.state, record.reason) == (Lifecycle.LOST, "for a test")


async def test_an_interrupted_removal_leaves_the_bookie_lost(memory_cluster: MemoryCluster) -> None:
    reached = asyncio.Event()

    async def pause() -> None:
        reached.set()
        await asyncio.Event().wait()

    removing = asyncio.get_running_loop().create_task(remove_with(memory_cluster, pause))
    await reached.wait()
    removing.cancel()
    await asyncio.gather(removing, return_exceptions=True)
    assert await state_of(memory_cluster, "a") is Lifecycle.LOST


async def test_no_bookie_is_removed_before_a_restore_is_accepted(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("b")
    await cluster.format("a")
    await cluster.set_state("a", Lifecycle.LOST)
    record = RestoreRecord(bytes(16), RestoreState.FINISHED, 5, bytes(32))
    await cluster.store.create(RESTORE, RESTORE_NODE.pack(record))
    with pytest.raises(RestoreUnacceptedError):
        await cluster.run(parser(), "remove", "a", "-o", "json")
    assert await state_of(cluster, "a") is Lifecycle.LOST
    await accept_restore(cluster.store)
    code, row = await cluster.run(parser(), "remove", "a", "-o", "json")
    assert (code, row["lifecycle"]) == (ExitCode.DONE, "removed")
