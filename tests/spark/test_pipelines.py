"""The jobs over ledgers: scrub, archive, restore, ingest, tail-to-table."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ledger_client import LedgerInfo, LedgerNotFoundError, Quorum
from ledger_client.cluster_access import open_cluster
from ledger_client.sync import LedgerClient
from metadata.ids import BookieId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import DigestType
from spark_io.errors import SparkIoError
from spark_io.pipelines.archive import ArchiveDamagedError, archive
from spark_io.pipelines.ingest import ingest, lines_of, rows_as_json
from spark_io.pipelines.restore import restore
from spark_io.pipelines.scrub import BadRange, closed_ledger_ids, findings_of, scrub
from spark_io.pipelines.tail_to_table import tail_to_table
from tests.spark.conftest import PATIENT, RunningCluster

PLANTED = 100


def make(
    client: LedgerClient, count: int, entries: int = 20, **metadata: str | bytes
) -> list[LedgerInfo]:
    infos = []
    for number in range(count):
        with client.create_ledger(Quorum.all(3), metadata=metadata) as writer:
            writer.append_many([b"ledger %d entry %d;" % (number, n) * 3 for n in range(entries)])
        infos.append(writer.info)
    return infos


def damage(cluster: RunningCluster, bookie_id: str, marks: list[bytes]) -> None:
    """Flip a bit of the payload after each mark, in the log of one bookie."""
    bookie = next(local_bookie for local_bookie in cluster.bookies if local_bookie.id == bookie_id)
    cluster.run(bookie.stop())
    flipped = 0
    for path in (bookie.data_dir / "log").glob("*.log"):
        data = bytearray(path.read_bytes())
        for mark in marks:
            at = data.find(mark)
            if at >= 0:
                data[at + len(mark) - 1] ^= 1
                flipped += 1
        path.write_bytes(data)
    assert flipped == len(marks)
    cluster.run(bookie.start())


async def move_replica(metadata: str, ledger_id: int, old: str, new: str) -> None:
    """Make the metadata name a bookie that holds nothing of the ledger."""
    async with open_cluster(metadata) as cluster:
        ledger, version = await cluster.ledgers.get(LedgerId(ledger_id))
        fragment = ledger.fragments[0]
        members = tuple(BookieId(new) if bookie == old else bookie for bookie in fragment.ensemble)
        token = UpdateToken(b"a planted change")
        moved = ledger.with_fragment(0, replace(fragment, ensemble=members), token)
        await cluster.ledgers.compare_and_set(moved, version)


def test_scrub_finds_what_was_planted_and_nothing_else(
    spark: SparkSession, own_cluster: RunningCluster
) -> None:
    with LedgerClient(own_cluster.metadata, config=PATIENT) as client:
        infos = make(client, 2 * PLANTED + 20)
    ids = sorted(int(info.id) for info in infos)
    assert closed_ledger_ids(own_cluster.metadata) == ids
    assert findings_of(scrub(spark, own_cluster.metadata)) == []
    victim = infos[0].fragments[0].ensemble[0]
    held = [n for n, info in enumerate(infos) if victim in info.fragments[0].ensemble]
    corrupted = held[:PLANTED]
    wanted = {BadRange(int(infos[n].id), 0, 19, str(victim), "corrupt") for n in corrupted}
    damage(own_cluster, victim, [b"ledger %d entry 7;" % n for n in corrupted])
    everybody = [bookie.id for bookie in own_cluster.bookies]
    for n in [n for n in range(len(infos)) if n not in corrupted][:PLANTED]:
        members = infos[n].fragments[0].ensemble
        absent = next(each for each in everybody if each not in members)
        asyncio.run(move_replica(own_cluster.metadata, infos[n].id, members[1], absent))
        wanted.add(BadRange(int(infos[n].id), 0, 19, absent, "missing"))
    assert len(wanted) == 2 * PLANTED
    found = findings_of(scrub(spark, own_cluster.metadata))
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_scrub_reports_no_copy_of_an_unreachable_bookie_as_missing(
    spark: SparkSession, fragile_cluster: RunningCluster
) -> None:
    with LedgerClient(fragile_cluster.metadata, config=PATIENT) as client:
        [info] = make(client, 1)
    member = info.fragments[0].ensemble[2]
    next(bookie for bookie in fragile_cluster.bookies if bookie.id == member).kill()
    [finding] = findings_of(scrub(spark, fragile_cluster.metadata, [info.id]))
    assert (finding.finding, finding.bookie) == ("unreachable", member)
    assert (finding.first_entry_id, finding.last_entry_id) == (0, 19)
    assert finding.detail


def test_an_archive_is_restored_unchanged(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    infos = make(client, 5, entries=300, app="orders", raw=b"\xff\x00")
    with client.create_ledger(Quorum.all(3)) as empty:
        pass
    ids = [int(info.id) for info in infos] + [int(empty.id)]
    steps: list[tuple[int, int]] = []
    path = str(tmp_path / "archive")
    first = archive(
        spark, cluster.metadata, path, ids[:2], on_step=lambda *step: steps.append(step)
    )
    assert (first.ledger_count, first.entry_count, first.skipped_count) == (2, 600, 0)
    assert steps == [(2, 2)]
    second = archive(spark, cluster.metadata, path, ids)
    assert (second.ledger_count, second.skipped_count) == (4, 2)
    restored = restore(spark, cluster.metadata, path, f"restored-{ids[0]}")
    assert list(restored) == ids
    assert client.ledger_info(restored[ids[5]]).last_entry_id == -1
    for number, info in enumerate(infos):
        copy = client.ledger_info(restored[int(info.id)])
        assert (copy.last_entry_id, copy.length) == (info.last_entry_id, info.length)
        assert (copy.metadata["app"], copy.metadata["raw"]) == ("orders", b"\xff\x00")
        assert copy.quorum == info.quorum
        assert copy.metadata["quire.restored_from"] == str(info.id)
        with client.open_ledger(copy.id) as reader:
            assert reader.read_entry(299).data == b"ledger %d entry 299;" % number * 3
    chain = f"restored-{ids[0]}"
    for again in (None, [*ids, *ids]):
        assert restore(spark, cluster.metadata, path, chain, ledger_ids=again) == restored
    links = client.chain(chain).info().next_index
    assert links == 1
    client.chain(chain).trim(links)
    restore(spark, cluster.metadata, path, chain, ledger_ids=ids[:1])
    assert client.chain(chain).info().next_index == links + 1, (
        "the trimmed ledger is restored again"
    )


def test_an_interrupted_archive_continues(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    ids = [int(info.id) for info in make(client, 2)]
    path = str(tmp_path / "archive")
    archive(spark, cluster.metadata, path, ids[:1])
    cut_off = tmp_path / "archive" / "entries" / f"ledger_id={ids[1]}"
    cut_off.mkdir()
    made = next((tmp_path / "archive" / "entries" / f"ledger_id={ids[0]}").glob("*.parquet"))
    (cut_off / "part-0.parquet").write_bytes(made.read_bytes())
    assert archive(spark, cluster.metadata, path, ids).entry_count == 20
    assert len(restore(spark, cluster.metadata, path, f"cut-{ids[0]}")) == 2


def test_damage_to_an_archive_is_noticed_and_nothing_is_published(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    ids = [int(info.id) for info in make(client, 2)]
    path = tmp_path / "archive"
    archive(spark, cluster.metadata, str(path), ids)
    chain = f"damaged-{ids[0]}"
    for file in (path / "entries" / f"ledger_id={ids[1]}").glob("*.parquet"):
        frame = spark.read.parquet(str(file)).where("entry_id <> 7").cache()
        frame.count()
        file.unlink()
        frame.coalesce(1).write.mode("append").parquet(str(file.parent))
    with pytest.raises(Exception, match="entry 7 is missing in the archive"):
        restore(spark, cluster.metadata, str(path), chain)
    assert client.chain(chain).info().next_index == 0


def test_ledgers_that_cannot_be_archived_are_refused(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    writer = client.create_ledger(Quorum.all(3))
    with pytest.raises(Exception, match=f"ledger {writer.id} is open"):
        archive(spark, cluster.metadata, str(tmp_path), [writer.id])
    writer.close()
    archive(spark, cluster.metadata, str(tmp_path), [writer.id])
    with pytest.raises(ArchiveDamagedError, match="does not contain ledgers"):
        restore(spark, cluster.metadata, str(tmp_path), "none", ledger_ids=[999_999])


def test_ledgers_that_cannot_be_scrubbed_are_refused(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient
) -> None:
    with pytest.raises(LedgerNotFoundError, match="ledger 4711"):
        scrub(spark, cluster.metadata, [4711])
    writer = client.create_ledger(Quorum.all(3))
    with pytest.raises(SparkIoError, match=f"ledger {writer.id} is open"):
        scrub(spark, cluster.metadata, [writer.id])
    writer.close()


def test_a_keyed_and_striped_ledger_goes_through_every_job(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    payloads = [b"%d" % number for number in range(3_000)]
    quorum = Quorum(ensemble=4, write=2, ack=2)
    with client.create_ledger(
        quorum, digest="hmac-sha256", password=b"a secret password"
    ) as writer:
        writer.append_many(payloads)
    assert (
        findings_of(scrub(spark, cluster.metadata, [writer.id], password=b"a secret password"))
        == []
    )
    options = {"password": "a secret password"}
    archive(spark, cluster.metadata, str(tmp_path), [writer.id], options=options)
    chain = f"keyed-{writer.id}"
    [new] = restore(spark, cluster.metadata, str(tmp_path), chain, options=options).values()
    info = client.ledger_info(new)
    assert (info.digest, info.quorum) == (DigestType.HMAC_SHA256, quorum.spec)
    reader = spark.read.format("ledger").option("metadata", cluster.metadata)
    rows = reader.option("chain", chain).option("password", "a secret password").load().collect()
    assert sorted(int(bytes(row.data)) for row in rows) == list(range(3_000))


def test_an_archive_refuses_another_ledger_with_the_same_id(
    spark: SparkSession,
    cluster: RunningCluster,
    client: LedgerClient,
    own_cluster: RunningCluster,
    tmp_path: Path,
) -> None:
    [mine] = make(client, 1)
    with (
        LedgerClient(own_cluster.metadata, config=PATIENT) as other,
        other.create_ledger(Quorum.all(3), ledger_id=mine.id) as writer,
    ):
        writer.append(b"another ledger")
    archive(spark, own_cluster.metadata, str(tmp_path), [mine.id])
    with pytest.raises(ArchiveDamagedError, match="another ledger"):
        archive(spark, cluster.metadata, str(tmp_path), [mine.id])


def test_lines_are_ingested_and_tailed(
    spark: SparkSession, cluster: RunningCluster, client: LedgerClient, tmp_path: Path
) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(5_000)))
    chain = f"lines-{tmp_path.name}-{id(tmp_path)}"
    done = ingest(lines_of(spark, [str(file)]), cluster.metadata, chain)
    assert (done.entry_count, done.payload_bytes) == (5_000, len(file.read_bytes()) - 5_000)
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    for times in (1, 2):
        tail_to_table(spark, cluster.metadata, chain, table, checkpoint).awaitTermination(120)
        assert spark.read.parquet(table).count() == 5_000 * times
        again = rows_as_json(spark.range(5_000))
        assert ingest(again, cluster.metadata, chain).entry_count == 5_000
    found = spark.read.parquet(table).selectExpr("string(data) as line")
    assert found.where("line = 'line 4999'").count() == 1
    assert found.where("""line = '{"id":4999}'""").count() == 1
