"""The arithmetic of the comparison with peers: turns, ratios, tables, answers, settings."""

from pathlib import Path

import pytest

from benchmarks.peers import bookkeeper, kafka
from benchmarks.peers.interleaving import TURNS, System, rotated, turns
from benchmarks.peers.java_process import PeerFailedError, parse_answer
from benchmarks.peers.maven import PeerUnavailableError, cache_name, prepare
from benchmarks.peers.table import RATIOS, Ratio, markdown, ratios_by_run
from benchmarks.peers.workloads import FULL, SMOKE, Case, Samples, Subject, Workload

RATE = "entries_per_s"
KIB_RATIO = Ratio(Workload.KIB, RATE, Subject.QUIRE, Subject.BOOKKEEPER, {"at_least": 3.0})


def _samples(ours: dict[int, float], theirs: dict[int, float]) -> Samples:
    samples = Samples()
    for subject, found in ((Subject.QUIRE, ours), (Subject.BOOKKEEPER, theirs)):
        for repetition, rate in found.items():
            samples.add(Case(Workload.KIB, subject), repetition, {RATE: rate, "first_failure": ""})
    return samples


def test_every_turn_is_first_once() -> None:
    order = list(turns(list(System), len(TURNS)))
    assert len(order) == len(TURNS) ** 2
    firsts = [turn for number, (_, turn) in enumerate(order) if number % len(TURNS) == 0]
    assert firsts == list(TURNS)
    for repetition in range(len(TURNS)):
        own = [turn for known, turn in order if known == repetition]
        assert sorted(own, key=TURNS.index) == list(TURNS)


def test_a_missing_peer_has_no_turn_and_the_others_keep_their_order() -> None:
    whole = [turn for turn in turns(list(System), 3) if turn[1].system is not System.KAFKA]
    assert list(turns([System.QUIRE, System.BOOKKEEPER], 3)) == whole
    assert {turn.system for _, turn in turns([System.QUIRE], 2)} == {System.QUIRE}


def test_rotation_goes_around() -> None:
    assert rotated("abc", 4) == ["b", "c", "a"]


def test_a_ratio_is_of_runs_of_the_same_repetition() -> None:
    samples = _samples({0: 10.0, 1: 40.0, 2: 90.0}, {2: 30.0, 0: 5.0})
    assert ratios_by_run(KIB_RATIO, samples) == [2.0, 3.0]


def test_a_run_without_a_rate_gives_no_ratio() -> None:
    assert ratios_by_run(KIB_RATIO, _samples({0: 10.0}, {0: 0.0})) == []
    assert ratios_by_run(KIB_RATIO, Samples()) == []


@pytest.mark.parametrize(("theirs", "verdict"), [(10.0, "met"), (10.1, "missed")])
def test_the_table_shows_whether_a_target_is_met(theirs: float, verdict: str) -> None:
    text = markdown(_samples({0: 30.0, 1: 30.0}, {0: theirs, 1: theirs}))
    assert f"| at least 3 | {verdict} |" in text
    assert "| append 1 KiB | entries_per_s | 30 (30 to 30) |" in text
    assert "Kafka /" not in text, "what was not measured has no ratio"
    assert Workload.READ not in text


def test_the_table_shows_failed_appends() -> None:
    samples = _samples({0: 30.0}, {0: 10.0, 1: 20.0})
    for repetition, failed_count in ((0, 0), (1, 1_200)):
        case = Case(Workload.KIB, Subject.BOOKKEEPER)
        samples.add(case, repetition, {"failed_count": failed_count})
    text = markdown(samples)
    assert "| 15 (10 to 20); 1,200 failed |" in text
    assert "| 30 (30 to 30) |" in text


def test_ratios_have_the_agreed_targets() -> None:
    wanted = {
        (ratio.workload, ratio.figure, ratio.ours, ratio.theirs): dict(ratio.wanted)
        for ratio in RATIOS
    }
    assert len(wanted) == len(RATIOS), "each comparison is made once"
    peer, batch = Subject.BOOKKEEPER, Subject.BOOKKEEPER_BATCH
    synced, default = Subject.KAFKA_SYNCED, Subject.KAFKA
    for ours in (Subject.QUIRE, Subject.QUIRE_MANY):
        assert wanted[Workload.KIB, RATE, ours, peer] == {"at_least": 3}
        assert wanted[Workload.SMALL, RATE, ours, peer] == {"at_least": 5}
        assert wanted[Workload.KIB, RATE, ours, synced] == {"at_least": 3}
        assert wanted[Workload.SMALL, RATE, ours, synced] == {"at_least": 2}
        assert wanted[Workload.KIB, RATE, ours, default] == {"at_least": 1}
    assert wanted[Workload.SINGLE, "p50_ms", Subject.QUIRE, peer] == {"at_most": 0.5}
    assert wanted[Workload.OPEN, "p99_ms", Subject.QUIRE, peer] == {"at_most": 0.5}
    assert wanted[Workload.READ, RATE, Subject.QUIRE_ENTRIES, batch] == {"at_least": 3}
    assert wanted[Workload.PAUSE, "max_ms", Subject.QUIRE, peer] == {"at_most": 0.1}
    assert wanted[Workload.MEMORY, "resident_MB", Subject.QUIRE, peer] == {"at_most": 1 / 3}


def test_results_are_separated_from_lines_of_libraries() -> None:
    answer = b'{"entries_per_s": 25000.5, "failed_count": 0, "done": true}\n'
    assert parse_answer(answer) == {"entries_per_s": 25000.5, "failed_count": 0}
    started = parse_answer(b'{"started": true, "members": "127.0.0.1:1,127.0.0.1:2"}\n')
    assert started is not None
    assert started["members"] == "127.0.0.1:1,127.0.0.1:2"
    for noise in (b"WARN: a library\n", b"17\n", b'{"level": "info"}\n', b"\xff\n"):
        assert parse_answer(noise) is None


def test_a_failed_command_is_an_error_with_its_reason() -> None:
    with pytest.raises(PeerFailedError, match="BKNotEnoughBookiesException"):
        parse_answer(b'{"error": "BKNotEnoughBookiesException"}\n')


def test_another_pom_has_another_cache() -> None:
    name = cache_name("kafka", [b"pom", b"source"])
    assert name.startswith("kafka-")
    assert name == cache_name("kafka", [b"pom", b"source"])
    assert name != cache_name("kafka", [b"pom", b"other"])
    assert name != cache_name("kafka", [b"po", b"msource"])


async def test_a_peer_without_its_tools_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnavailableError, match="java is not installed"):
        await prepare("kafka", tmp_path)


@pytest.mark.real_time
async def test_a_peer_that_maven_cannot_fetch_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("java", "javac", "mvn"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho Unknown host repo.example\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for _ in range(2):  # an incomplete download is not treated as complete
        with pytest.raises(PeerUnavailableError, match="did not fetch it: Unknown host"):
            await prepare("kafka", tmp_path / "cache")


def test_bookies_sync_their_journals() -> None:
    lines = bookkeeper.settings_of(4000, Path("data"), "zk://127.0.0.1:1/ledgers").splitlines()
    assert "journalSyncData=true" in lines
    assert "bookiePort=4000" in lines
    assert "metadataServiceUri=zk://127.0.0.1:1/ledgers" in lines


def test_every_broker_has_the_addresses_of_all_controllers() -> None:
    lines = kafka.settings_of(1, [11, 12, 13, 21, 22, 23], Path("data")).splitlines()
    voters = "0@127.0.0.1:21,1@127.0.0.1:22,2@127.0.0.1:23"
    assert f"controller.quorum.voters={voters}" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:12,CONTROLLER://127.0.0.1:22" in lines
    assert "min.insync.replicas=2" in lines


def test_a_pause_counts_from_shortly_before_it() -> None:
    for sizes in (FULL, SMOKE):
        assert 0 < sizes.pause_judged_from_s < sizes.pause_from_s < sizes.pause_s
