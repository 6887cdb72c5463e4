"""`quire ledger accept-loss` on a cluster whose bookies do not answer."""

import asyncio
import io
import json
from typing import Any

import pytest

from metadata.ids import ClientId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.paths import client_path
from metadata.repair.lifecycle import Lifecycle
from quire.cli import cluster as cluster_verbs
from quire.cli.ledger_loss import WRITER_AWAY_S, LossUndecidedError
from quire.cli.ledger_verbs import parser
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode, NeedsConsentError, UsageError
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import IN_SYNC, closed_ledger, open_ledger

TOKEN = UpdateToken(bytes(16))


async def lose(cluster: MemoryCluster, *names: str) -> None:
    for name in names:
        await cluster.format(name)
        await cluster.set_state(name, Lifecycle.LOST)


async def refused(
    *words: str, expected: type[CommandError] = NeedsConsentError
) -> tuple[CommandError, Any]:
    """Run a verb that fails; return its error, and what it printed before."""
    arguments = parser().parse_args([*words, "-o", "json"])
    results = io.StringIO()
    output = Output(as_json=True, results=results, remarks=io.StringIO())
    with pytest.raises(expected) as raised:
        await arguments.handler(arguments, output)
    text = results.getvalue()
    return raised.value, json.loads(text) if text else None


async def test_without_consent_it_shows_what_is_lost(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("d", "e", "f")
    await lose(cluster, "a", "b", "c")
    await cluster.add(closed_ledger("abc"))
    error, row = await refused("accept-loss", "7")
    assert error.try_next == "quire ledger accept-loss 7 --yes"
    assert (row["is_accepted"], row["lost"], row["unknown"]) == (False, [[0, 9]], [])
    assert (row["lost_entries"], row["lost_bytes_about"]) == (10, 1_000)
    assert [each["id"] for each in row["bookies"]] == ["a", "b", "c"]
    stored, _ = await cluster.ledgers.get(LedgerId(7), fresh=True)
    assert stored.lost == ()


async def test_an_accepted_loss_is_listed_and_no_problem(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("d", "e", "f")
    await lose(cluster, "a", "b", "c")
    await cluster.add(closed_ledger("abc"))
    code, row = await cluster.run(cluster_verbs.parser(), "health", "-o", "json")
    assert code == ExitCode.FINDINGS
    code, row = await cluster.run(parser(), "accept-loss", "7", "--yes", "-o", "json")
    assert (code, row["is_accepted"], row["lost"]) == (ExitCode.DONE, True, [[0, 9]])
    assert [(each["first"], each["last"]) for each in row["accepted"]] == [(0, 9)]
    code, row = await cluster.run(cluster_verbs.parser(), "health", "-o", "json")
    (warning,) = [each for each in row["warnings"] if each["where"] == "ledger 7"]
    assert warning["what"] == "entries 0-9 are lost, as accepted"
    assert code == ExitCode.DONE
    code, row = await cluster.run(parser(), "accept-loss", "7", "-o", "json")
    assert (code, row["lost"]) == (ExitCode.DONE, [])


async def test_a_bookie_that_is_only_away_must_be_given_up(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("d")
    await lose(cluster, "a", "b")
    await cluster.format("c")
    await cluster.add(closed_ledger("abc"))
    error, row = await refused("accept-loss", "7", "--yes", expected=LossUndecidedError)
    assert "c may have them" in str(error)
    assert (row["lost"], row["unknown"]) == ([], [[0, 9]])
    error, _ = await refused("accept-loss", "7", "--even-if-unreachable")
    assert error.try_next == "quire ledger accept-loss 7 --even-if-unreachable --yes"
    words = ("accept-loss", "7", "--even-if-unreachable", "--yes")
    code, text = await cluster.text(parser(), *words)
    assert code == ExitCode.DONE
    assert "0-9" in text
    stored, _ = await cluster.ledgers.get(LedgerId(7), fresh=True)
    assert [
        (lost_range.first_entry_id, lost_range.last_entry_id) for lost_range in stored.lost
    ] == [(0, 9)]


async def test_a_ledger_in_recovery_shows_where_it_would_end(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("d")
    await lose(cluster, "a", "b", "c")
    await cluster.add(open_ledger("efg", "abc").with_recovery_begun(TOKEN))
    error, row = await refused("accept-loss", "7", "--even-if-unreachable")
    assert "would be closed at the end shown above" in str(error)
    assert (row["last_entry_id"], row["is_end_proved"]) == (9, False)
    assert [each["id"] for each in row["given_up"]] == ["a", "b", "c"]
    stored, _ = await cluster.ledgers.get(LedgerId(7), fresh=True)
    assert stored.state is LedgerState.IN_RECOVERY


async def test_the_ledger_of_a_live_writer_is_left_alone(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("d")
    await cluster.add(open_ledger("abc"))
    await cluster.store.create(client_path(ClientId("client-x")), b"")
    error, _ = await refused("accept-loss", "7", "--yes", expected=CommandError)
    assert "its writer, client-x, is running" in str(error)
    stored, _ = await cluster.ledgers.get(LedgerId(7), fresh=True)
    assert stored.state is LedgerState.OPEN


async def test_a_writer_that_registers_again_within_two_sessions_is_left_alone(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = memory_cluster
    monkeypatch.setattr("quire.cli.ledger_loss.WRITER_AWAY_S", 0.5)
    await cluster.create("d")
    await lose(cluster, "a", "b", "c")
    await cluster.add(open_ledger("abc"))

    async def return_soon() -> None:
        await asyncio.sleep(0.1)
        await cluster.store.create(client_path(ClientId("client-x")), b"")

    returning = asyncio.create_task(return_soon())
    error, _ = await refused("accept-loss", "7", "--yes", expected=CommandError)
    await returning
    assert "its writer, client-x, is running" in str(error)
    stored, _ = await cluster.ledgers.get(LedgerId(7), fresh=True)
    assert stored.state is LedgerState.OPEN


async def test_the_plan_for_an_open_ledger_says_how_long_its_writer_must_be_away(
    memory_cluster: MemoryCluster,
) -> None:
    cluster = memory_cluster
    await cluster.create("d")
    await lose(cluster, "a", "b", "c")
    await cluster.add(open_ledger("efg", "abc"))
    error, _ = await refused("accept-loss", "7", "--even-if-unreachable")
    assert f"its writer must stay away for {WRITER_AWAY_S:g} s more" in str(error)


async def test_an_in_sync_ledger_has_its_own_recovery(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("d")
    await cluster.add(open_ledger("abc", quorum=IN_SYNC).with_recovery_begun(TOKEN))
    error, _ = await refused("accept-loss", "7", "--yes", expected=UsageError)
    assert error.try_next == "quire ledger recover 7 --unclean"
