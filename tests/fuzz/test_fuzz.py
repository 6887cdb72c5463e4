"""Tests of every parser with a few thousand damaged inputs, and of the fuzzer with planted defects.

Leaves millions of them to `python -m tests.fuzz`.
"""

import asyncio
import base64
import random
from collections.abc import Callable

import pytest
from crc32c import crc32c

from bookie.server.access import ANONYMOUS
from bookie.server.connection import ClientConnection
from bookie.server.greeting import Greeting, Guest
from bookie.server.ledger_requests import LedgerRequests
from bookie.storage.answers import LedgerSnapshot
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire import codec, messages
from ledger_client.bookies.connection import BookieConnection
from metadata.ids import EntryId, LedgerId
from quire.gateway.rights.verdict import Allowed
from quire.identity.errors import SaslError
from quire.identity.sasl.scram import ClientFirst, ScramServer
from tests.fuzz import disk_targets, watch, wire_targets
from tests.fuzz.crc import reference_crc32c
from tests.fuzz.findings import Tally, require
from tests.fuzz.mutations import OUTPUT_BYTES_MAX, Mutator
from tests.fuzz.runner import Share, all_targets, is_known, plan, run, summarise
from tests.fuzz.targets import ParserTarget
from tests.fuzz.watch import HangError, hangs_noticed

TARGETS = all_targets()
FRAMES = 2_000
MIB = 1 << 20
FRAMES_PLANTED = 1_500


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_refused_with_the_parsers_own_error(name: str) -> None:
    tally = Tally()
    number = 0
    while tally.frames < FRAMES * min(1.0, TARGETS[name].weight):
        TARGETS[name].run_block(7, number, tally)
        number += 1
    assert not [finding for finding in tally.findings if not is_known(finding)]
    assert tally.accepted > 0, "some of it reaches what lies behind the checks"


def test_a_block_is_the_same_every_time() -> None:
    for name in ("batch", "segment", "server_connection", "client_connection"):
        tallies = [Tally(), Tally()]
        for tally in tallies:
            TARGETS[name].run_block(3, 1, tally)
        assert (tallies[0].frames, tallies[0].accepted) == (tallies[1].frames, tallies[1].accepted)


def test_changes_are_bounded_and_most_of_them_change_something() -> None:
    samples = [b"", b"\x01", bytes(range(200)), bytes(OUTPUT_BYTES_MAX)]
    mutator = Mutator(random.Random(1), samples, fields=((0, 4), (190, 8)))
    changed = 0
    for _ in range(2_000):
        sample = mutator.pick()
        out = mutator.mutate(sample)
        assert len(out) <= OUTPUT_BYTES_MAX
        changed += out != sample
    assert changed > 1_400


def test_the_reference_is_crc32c() -> None:
    assert reference_crc32c(b"123456789") == 0xE3069283
    assert reference_crc32c(b"6789", reference_crc32c(b"12345")) == crc32c(b"123456789")


# Planted defects are found


def _found_in(name: str, frames: int = FRAMES_PLANTED) -> str:
    target = all_targets()[name]
    tally, number = Tally(), 1
    while tally.frames < frames and not tally.findings:
        target.run_block(5, number, tally)
        number += 1
    return " | ".join(finding.what for finding in tally.findings if not is_known(finding))


def test_another_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _found_in("request")
    monkeypatch.setattr(codec, "MessageError", KeyError)
    assert "KeyError" in _found_in("request")


def test_a_check_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookie.wire.batch.BatchView.verify_crc", lambda _: None)
    assert "passed its CRC" in _found_in("batch")


def test_a_finding_is_reproduced_by_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookie.log.replay.is_whole", lambda _header, _body: True)
    target, tally = all_targets()["record"], Tally()
    target.run_block(5, 1, tally)
    finding = next(each for each in tally.findings if not each.is_forged)
    again = target.replay(bytes.fromhex(finding.input_hex), is_forged=False)
    assert [each.what for each in again.findings] == [finding.what]


def test_a_record_whose_body_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookie.log.replay.is_whole", lambda _header, _body: True)
    assert "the same encoded again" in _found_in("record")
    assert "damaged record" in _found_in("segment")


def test_a_run_whose_checksum_is_not_checked_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unseal(_key: bytes, value: bytes, size: int) -> bytes | None:
        return value[:size] if len(value) == size + 4 else None

    monkeypatch.setattr("bookie.index.stored_runs.unseal", unseal)
    assert _found_in("index")


def test_an_allocation_beyond_the_bound_is_found() -> None:
    def greedy(data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
        announced = int.from_bytes(data[:3], "big")
        require(len(bytearray(announced)) == announced, "it was given what it asked for")
        return True

    target = ParserTarget("greedy", greedy, (b"\x00\x00\x10data",))
    tally = Tally()
    target.run_block(1, 0, tally)
    assert "over its bound" in tally.findings[0].what


def test_an_allocation_of_something_else_is_no_finding() -> None:
    """Imports of a first call and other threads allocate while an input is measured."""
    calls: list[bytes] = []

    def import_once(_data: bytes, _origin: bytes, _is_sealed: bool) -> bool:
        calls.append(bytes(0 if calls else 4 * MIB))
        calls[0] = b""
        return True

    tally = Tally()
    ParserTarget("imports", import_once, (b"data",)).run_block(1, 0, tally)
    assert not tally.findings
    assert len(calls) == tally.inputs + 1, "measured once more, and counted once"
    assert tally.accepted == tally.inputs


def test_an_endless_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "TICK_CPU_S", 0.05)
    tally = Tally()
    with pytest.raises(HangError), hangs_noticed(tally):
        while True:
            tally.frames += 1


def test_a_server_that_fails_inside_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LedgerRequests, "try_read", fail)
    assert "ZeroDivisionError" in _found_in("server_connection")


def test_a_server_that_answers_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = ClientConnection.flush_acks

    def flush_twice(connection: ClientConnection) -> None:
        connection._acks += connection._acks[:1]
        flush(connection)

    monkeypatch.setattr(ClientConnection, "flush_acks", flush_twice)
    assert "answered once" in _found_in("server_connection")


def test_a_server_that_leaves_a_request_unanswered_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClientConnection, "_refuse", lambda *_: None)
    assert "what was asked is answered" in _found_in("server_connection")


def test_a_log_that_fails_when_a_client_leaves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write_lac(
        storage: BookieStorage, ledger_id: LedgerId, lac: EntryId, master_key: bytes | None
    ) -> LedgerSnapshot:
        stored: asyncio.Future[messages.Status] = asyncio.get_running_loop().create_future()
        storage.report_lac(ledger_id, lac, master_key, stored.set_result)
        return storage.reads.snapshot(ledger_id, await stored)

    monkeypatch.setattr(BookieStorage, "write_lac", write_lac)
    assert "InvalidStateError" in _found_in("server_connection", 4 * FRAMES_PLANTED)


@pytest.mark.parametrize("place", ["_fail_all", "_take_acks"])
def test_a_client_that_drops_a_call_is_found(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(BookieConnection, place, lambda *_: None)
    assert _found_in("client_connection")


@pytest.mark.parametrize(
    ("place", "defect", "what"),
    [
        ("scram.proves", lambda *_: True, "without a proof"),
        ("plain._fits", lambda *_: True, "without a proof"),
        ("scram.decode_base64", base64.b64decode, "Error: "),
    ],
)
def test_a_defect_of_sasl_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, defect: Callable[..., object], what: str
) -> None:
    monkeypatch.setattr(f"quire.identity.sasl.{place}", defect)
    assert what in _found_in("sasl")


@pytest.mark.parametrize(
    ("place", "defect", "what"),
    [
        ("quire.identity.sasl.scram.proves", lambda *_: True, "served without a login"),
        (
            "broker_layer.server.access.Login.takes",
            lambda *_: False,
            "served without a login",
        ),
        ("quire.identity.sasl.sessions.SaslSession.revoke", lambda *_: None, "password"),
        ("quire.identity.sasl.sessions.SaslSession.forget", lambda *_: None, "a login is left"),
        (
            "broker_layer.server.connections.BrokerConnection.unanswered_count",
            0,
            "answers are bounded",
        ),
        ("broker_layer.server.access.SaslError", KeyError, "fails by our own error"),
    ],
)
def test_a_defect_of_logins_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, defect: object, what: str
) -> None:
    monkeypatch.setattr(place, defect)
    assert what in _found_in("login", 4 * FRAMES_PLANTED)


def test_a_server_that_shows_which_users_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = ScramServer._begin

    def refuse(self: ScramServer, first: ClientFirst) -> bytes:
        answer = begin(self, first)
        if self._credential is None:
            raise SaslError("this user does not exist")
        return answer

    monkeypatch.setattr(ScramServer, "_begin", refuse)
    assert "fails as a known one does" in _found_in("sasl")


@pytest.mark.parametrize(
    ("place", "defect", "what"),
    [
        ("quire.gateway.requests.decide_read", lambda *_: None, "a secret is sent"),
        (
            "quire.gateway.requests.decide_writes",
            lambda *_: Allowed(),
            "changes something",
        ),
        (
            "quire.gateway.connection.ClientConnection._drop_watches",
            lambda _: None,
            "a watch is left",
        ),
        ("quire.gateway.connection.decode_request", lambda _: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_defect_of_a_gateway_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, defect: object, what: str
) -> None:
    monkeypatch.setattr(place, defect)
    assert what in _found_in("gateway", 4 * FRAMES_PLANTED)


# Many blocks


def test_shares_do_not_depend_on_the_workers() -> None:
    chosen = [TARGETS[name] for name in ("acks", "request")]
    shares = plan(chosen, 100_000, 9)
    assert sum(share.frames for share in shares) >= 100_000
    assert len({(share.target, share.first) for share in shares}) == len(shares)
    few = [Share("acks", 9, 0, 1, 600), Share("cookie", 9, 0, 1, 600)]
    summary = summarise(run(few, workers=1), 1.0, 9)
    assert summary["is_well"]
    assert summary["findings"] == []


@pytest.mark.parametrize(
    "samples",
    [disk_targets.sample_segments, wire_targets.sample_batches, disk_targets.sample_cookies],
)
def test_samples_are_what_the_encoders_make(samples: Callable[[], tuple[bytes, ...]]) -> None:
    assert samples() == samples()


@pytest.mark.parametrize(
    ("place", "defect", "what"),
    [
        ("quire.identity.sasl.scram.proves", lambda *_: True, "without a proof"),
        ("bookie.server.server_context.ServerContext._lacks_login", lambda *_: False, "hello"),
        ("quire.identity.sasl.sessions.SaslSession.revoke", lambda *_: None, "without a proof"),
        ("quire.identity.sasl.sessions.SaslSession.forget", lambda *_: None, "a session is left"),
        ("bookie.server.greeting.SaslError", KeyError, "Error"),
    ],
)
def test_a_defect_of_logins_at_bookies_is_found(
    monkeypatch: pytest.MonkeyPatch, place: str, defect: object, what: str
) -> None:
    monkeypatch.setattr(place, defect)
    assert what in _found_in("bookie_login", 4 * FRAMES_PLANTED)


def test_a_request_that_is_served_before_the_login_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer_hello = Greeting._answer_hello

    def welcome(greeting: Greeting, request_id: int, hello: messages.Hello) -> None:
        answer_hello(greeting, request_id, hello)
        greeting._door.welcome(Guest(ANONYMOUS, "", names_bookie=True))

    monkeypatch.setattr(Greeting, "_answer_hello", welcome)
    assert "without a login" in _found_in("bookie_login")
