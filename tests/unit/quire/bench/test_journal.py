"""The journal of a load process, read while it writes or after it was killed."""

from pathlib import Path

from quire.bench.journal import ACK, ACKS_NAME, NOTES_NAME, Ack, JournalWriter, read_journal


async def test_written_records_are_read(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "journal")
    acks = tuple(Ack(number, 7, number + 3, number / 8) for number in range(3))
    for ack in acks:
        writer.acknowledge(ack)
    writer.note("opened", 1.5, {"ledger_id": 7})
    writer.note("closed", 2.5)
    writer.flush()
    found = read_journal(tmp_path / "journal")
    assert found.acks == acks
    assert found.of_kind("opened") == [{"kind": "opened", "at": 1.5, "ledger_id": 7}]
    assert [note["kind"] for note in found.notes] == ["opened", "closed"]
    writer.close()


async def test_torn_ends_are_left_out(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path)
    writer.acknowledge(Ack(1, 7, 1, 1.0))
    writer.note("opened", 1.5)
    writer.close()
    with (tmp_path / ACKS_NAME).open("ab") as file:
        file.write(ACK.pack(2, 7, 2, 2.0)[:-1])
    with (tmp_path / NOTES_NAME).open("ab") as file:
        file.write(b'{"kind": "clo')
    found = read_journal(tmp_path)
    assert ([ack.number for ack in found.acks], len(found.notes)) == ([1], 1)


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none").acks == ()
