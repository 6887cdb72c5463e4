"""Options are checked before any connection; each error names the option and the valid values."""

import base64
import pickle
from pathlib import Path

import pytest

from ledger_client import AS_STORED, Encryption
from spark_io.errors import OptionError
from spark_io.ledgers.options import (
    ReadOptions,
    Selection,
    WriteOptions,
    keys_to_read,
    keys_to_write,
)

ADDRESS = {"metadata": "zk://127.0.0.1:2181/quire"}


def reading(**options: str) -> ReadOptions:
    return ReadOptions.of({**ADDRESS, "ledger": "7", **options})


def writing(**options: str) -> WriteOptions:
    return WriteOptions.of({**ADDRESS, "chain": "events", **options})


def test_names_are_compared_without_regard_to_case() -> None:
    read = ReadOptions.of(
        {**ADDRESS, "LEDGERS": "7, 8,7", "splitbytes": "5", "INCLUDEVALUE": "False"}
    )
    assert read.selection == Selection(ledger_ids=(7, 8))
    assert (read.split_bytes, read.include_value) == (5, False)


def test_defaults() -> None:
    read, write = reading(), writing()
    assert (read.starting_offsets, read.ending_offsets) == ("earliest", "latest")
    assert read.fail_on_data_loss
    assert (write.quorum.ensemble, write.quorum.write, write.quorum.ack) == (3, 3, 2)
    assert (write.application, write.batch) == ("", None)


@pytest.mark.parametrize("text", ["a=1,b=2", '{"a": 1, "b": "2"}', " a = 1 , b=2"])
def test_custom_metadata_to_match(text: str) -> None:
    read = ReadOptions.of({**ADDRESS, "match": text})
    assert read.selection.match == (("a", "1"), ("b", "2"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("67108864", 2**26), ("64MB", 2**26), ("64 m", 2**26), ("65536KiB", 2**26), ("7b", 7)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert reading(splitBytes=text).split_bytes == size
    assert reading(maxBytesPerTrigger=text).max_bytes_per_trigger == size
    assert reading(arrowBatchBytes=text).arrow_batch_bytes == size
    assert writing(ledgerBytesMax=text).ledger_bytes_max == size


def test_an_hmac_digest_with_a_password() -> None:
    assert writing(digest="hmac-sha256", password="secret").digest == "hmac-sha256"


def test_fields_of_the_client_are_options() -> None:
    read = reading(**{"client.read_timeout_s": "1.5", "client.copy_bytes_per_s": "none"})
    assert read.client.config.read_timeout_s == 1.5
    assert read.client.config.copy_bytes_per_s is None
    assert hash(read.client) == hash(read.client)


def test_a_password_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"s\xc3\xa9cret \n")
    file.chmod(0o600)
    assert reading(passwordFile=str(file)).client.password == b"s\xc3\xa9cret "
    assert "cret" not in repr(reading(passwordFile=str(file)))


def test_a_password_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"secret\n")
    file.chmod(0o604)
    with pytest.raises(OptionError, match="chmod 600") as caught:
        reading(passwordFile=str(file))
    assert "secret" not in str(caught.value)


def test_quorums() -> None:
    in_sync = writing(inSync="true", ensemble="3", minInSync="1").quorum
    assert (in_sync.ensemble, in_sync.min_in_sync, in_sync.spec.is_in_sync) == (3, 1, True)
    striped = writing(ensemble="5", writeQuorum="3", ackQuorum="2").quorum
    assert (striped.ensemble, striped.write, striped.ack) == (5, 3, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ledger": "x"}, "'x' is not a ledger id"),
        ({"ledger": "9223372036854775808"}, "is not a ledger id"),
        ({"chain": "events"}, "found ledger and chain"),
        ({"splitBytes": "0"}, "at least 1"),
        ({"minPartitions": "100001"}, "100001 is over 100000"),
        ({"client.batch_bytes_max": "1.5"}, "must be a whole number, not '1.5'"),
        ({"splitBytes": "64MX"}, "'64MX' is not a size: write bytes, or a unit .* such as 64MB"),
        ({"splitBytes": "1.5MB"}, "is not a size"),
        ({"splitBytes": "-1"}, "is not a size"),
        ({"arrowBatchBytes": "2GB"}, "is 2147483648 bytes: give .* at most 536870912"),
        ({"maxBytesPerTrigger": "9999999T"}, "at most 9223372036854775807"),
        ({"splitBytes": "1e6"}, "is not a size"),
        ({"failOnDataLoss": "yes"}, "neither true nor false"),
        ({"metadata": "http://x"}, "metadata"),
        ({"passwordFile": "/no/such/file"}, "cannot be read"),
        ({"password": "a", "passwordFile": "b"}, "give one of the two"),
        ({"client.unanswered_bytes_max": "5"}, "must be at least"),
        ({"client.read_timeout_s": "soon"}, "client.read_timeout_s must be a number, not 'soon'"),
        ({"client.nonsense": "1"}, "unknown"),
        ({"includeValues": "true"}, "did you mean 'includeValue'"),
        ({"header": "true"}, "'header': is one of Spark's file formats.*payloadFormat"),
    ],
)
def test_wrong_options_of_a_read(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        reading(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"chain": ""}, "missing"),
        ({"chain": "../x"}, "is not a valid chain name"),
        ({"txnVersion": "1"}, "needs txnAppId"),
        ({"txnAppId": "a" * 1001}, "over 1000 characters"),
        ({"digest": "md5"}, "neither crc32c nor"),
        ({"digest": "hmac-sha256"}, "'digest': hmac-sha256 needs a password"),
        ({"digest": "hmac-sha256", "password": ""}, "needs a password"),
        ({"ledgerBytesMax": "big"}, "'big' is not a size"),
        ({"ensemble": "2", "ackQuorum": "3"}, "a quorum needs"),
        ({"inSync": "true", "minInSync": "9"}, "min_in_sync"),
        ({"minInSync": "2"}, "^option 'minInSync': needs inSync=true"),
        ({"inSync": "true", "ackQuorum": "2"}, "^option 'ackQuorum': in in-sync mode"),
        ({"ensemble": "three"}, "^option 'ensemble': 'three' is not a whole number"),
        ({"ledger": "7"}, "unknown"),
    ],
)
def test_wrong_options_of_a_write(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        writing(**options)


@pytest.mark.parametrize("text", ["a", "a=1,b", "{", "[1]"])
def test_malformed_match_options_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="match"):
        ReadOptions.of({**ADDRESS, "match": text})


def test_a_key_file_is_named_and_not_read_into_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    key = base64.b64encode(b"0123456789" * 3 + b"ab").decode()
    file.write_text(f'[keys]\nold = "{key}"\n')
    file.chmod(0o600)
    read = reading(keyFile=str(file))
    assert read.key_file == str(file)
    assert key not in repr(read)
    assert b"0123456789" not in pickle.dumps(read)
    keys = keys_to_read(read)
    assert isinstance(keys, Encryption)
    assert keys.reads_plain
    assert keys_to_read(reading(keyFile=str(file), asStored="true")) is AS_STORED
    assert keys_to_read(reading()) is None
    with pytest.raises(OptionError, match="'keyFile': no key is named for new ledgers"):
        writing(keyFile=str(file))
    file.write_text(f'current = "old"\n[keys]\nold = "{key}"\n')
    encryption = keys_to_write(writing(keyFile=str(file)))
    assert encryption is not None
    assert encryption.current == "old"
    assert keys_to_write(writing()) is None
    file.chmod(0o644)
    for make in (reading, writing):
        with pytest.raises(OptionError, match=r"'keyFile': the key file .* chmod 600"):
            make(keyFile=str(file))
