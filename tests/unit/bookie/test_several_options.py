"""Options of several bookies from one file: shared defaults, and all mistakes in one error."""

import argparse
from pathlib import Path

import pytest

from bookie.options import OPTIONS, load_options
from bookie.several_options import flags_of, has_several, load_several
from quire.cli.servers import BOOKIE, add_option_flags
from quire.server.errors import OptionError

TWO = """
[bookie_defaults]
metadata = "zk://zk1:2181/quire"
location = "/eu/r1/default"
host = "10.0.0.5"
allow_plaintext = true

[[bookie]]
data_dir = "/srv/disk1/bookie"
port = 3181

[[bookie]]
data_dir = "/srv/disk2/bookie"
port = 3182
location = "/eu/r2/default"
"""


def refusal(text: str, variables: dict[str, str] | None = None, **flags: str | int) -> list[str]:
    with pytest.raises(OptionError) as caught:
        load_several(text, variables or {}, flags)
    return str(caught.value).splitlines()


def test_tables_override_the_shared_defaults() -> None:
    assert has_several(TWO)
    one, two = load_several(TWO, {"QUIRE_BOOKIE_LOG_LEVEL": "debug"}, {"weight": 3})
    assert (one.data_dir, one.port, one.location) == ("/srv/disk1/bookie", 3181, "/eu/r1/default")
    assert (two.data_dir, two.port, two.location) == ("/srv/disk2/bookie", 3182, "/eu/r2/default")
    for each in (one, two):
        assert (each.metadata, each.host) == ("zk://zk1:2181/quire", "10.0.0.5")
        assert (each.log_level, each.weight) == ("debug", 3)


def test_single_table_is_not_several() -> None:
    assert not has_several('[bookie]\ndata_dir = "/srv/bookie"\n')
    assert not has_several(None)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    text = f"""
        [[bookie]]
        data_dir = "{tmp_path}/disk"
        port = 3181
        [[bookie]]
        data_dir = "{tmp_path}/link"
        port = 3181
        admin_port = 3181
        [[bookie]]
        data_dir = "{tmp_path}/other"
        admin_port = 3181
        admin_host = "0.0.0.0"
        admin_token_file = "token"
        allow_plaintext = true
    """
    assert refusal(text) == [
        f"[[bookie]] 2 data_dir is that of [[bookie]] 1: {tmp_path}/link",
        "[[bookie]] 2 port is that of [[bookie]] 1 port: 3181",
        "[[bookie]] 2 admin_port is that of [[bookie]] 1 port: 3181",
        "[[bookie]] 3 admin_port is that of [[bookie]] 1 port: 3181",
    ]
    wrong = '[[bookie]]\nport = 1\n[[bookie]]\ndata_dir = "a"\nwieght = 2\n[[bookie]]\nport = "x"\n'
    assert refusal(wrong) == [
        "[[bookie]] 1: data_dir is not set: give --data-dir, or data_dir in the file",
        "unknown option in [[bookie]] 2: wieght; did you mean weight?",
        "[[bookie]] 3 port must be a whole number, not 'x'",
    ]


def test_equal_ports_of_different_addresses_are_no_clash() -> None:
    text = '[[bookie]]\ndata_dir = "a"\nallow_plaintext = true\nhost = "10.0.0.1"\nport = 5\n'
    text += '[[bookie]]\ndata_dir = "b"\nallow_plaintext = true\nhost = "10.0.0.2"\nport = 5\n'
    assert len(load_several(text, {}, {})) == 2


def test_own_options_cannot_be_shared() -> None:
    assert refusal(TWO, {"QUIRE_BOOKIE_PORT": "1"}, data_dir="/srv/bookie") == [
        "--data-dir would apply to every bookie: set data_dir in each [[bookie]]",
        "QUIRE_BOOKIE_PORT would apply to every bookie: set port in each [[bookie]]",
        "[[bookie]] 2 data_dir is that of [[bookie]] 1: /srv/bookie",
        "[[bookie]] 2 port is that of [[bookie]] 1 port: 1",
    ]
    (line,) = refusal("[bookie_defaults]\nport = 0\n" + TWO.partition("allow_plaintext = true")[2])
    assert line.startswith("[bookie_defaults] port would apply")


def test_invalid_tables_are_refused() -> None:
    assert refusal("bookie = [1]\n") == ["[[bookie]] 1 is not a table: write [[bookie]]"]
    assert refusal("[bookie]\n") == [
        "the configuration file has no [[bookie]] tables: write one for each bookie"
    ]


def test_flags_give_the_same_options_again() -> None:
    first, _ = load_several(TWO, {"QUIRE_BOOKIE_DIE_WITH_PARENT": "true"}, {"disk_low_mark": 0.5})
    parser = argparse.ArgumentParser()
    add_option_flags(BOOKIE, "store_true", parser)
    read = vars(parser.parse_args(flags_of(first)))
    given = {name: value for name, value in read.items() if name in OPTIONS and value is not None}
    assert load_options(None, {}, given) == first
