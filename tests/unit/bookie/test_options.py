"""Options come from a file, variables and flags; errors name the option and suggest a name. One
file may have several bookies.
"""

import argparse
import re
from pathlib import Path

import pytest

from bookie.config import StorageConfig
from bookie.options import BOOKIE, BookieOptions, has_several, load_several
from bookie.server.server_limits import ServerLimits
from metadata.registry.registration import OWNERS_FEATURE
from quire.cli.servers import add_option_flags, given_flags
from quire.options import OptionError, Value

FLAGS = {"data_dir": "/data"}


def test_defaults_are_within_their_own_bounds() -> None:
    options = BOOKIE.load(None, {}, FLAGS)
    assert options == BookieOptions(data_dir="/data")
    for name, option in BOOKIE.options.items():
        again = BOOKIE.load(None, {}, {**FLAGS, name: getattr(options, name)})
        assert again == options
        assert option.facts.help


def test_flags_override_the_file_and_the_file_overrides_variables() -> None:
    text = '[bookie]\ndata_dir = "/file"\nport = 1\nadmin_port = 1\nconnections_max = 7\n'
    variables = {"QUIRE_BOOKIE_PORT": "2", "QUIRE_BOOKIE_WEIGHT": "2"}
    options = BOOKIE.load(text, variables, {"admin_port": 3})
    assert (options.data_dir, options.connections_max) == ("/file", 7)
    assert (options.port, options.admin_port, options.weight) == (1, 3, 2)


def test_metadata_has_a_variable_for_every_program() -> None:
    options = BOOKIE.load(None, {"QUIRE_METADATA": "zk://h:1/q", "QUIRE_OTHER": "x"}, FLAGS)
    assert options.metadata == "zk://h:1/q"


def test_the_variable_for_every_program_overrides_no_file() -> None:
    variables = {"QUIRE_METADATA": "zk://clients:1/q"}
    text = '[bookie]\nmetadata = "zk://servers:1/q"\n'
    assert BOOKIE.load(text, variables, FLAGS).metadata == "zk://servers:1/q"
    own = {**variables, "QUIRE_BOOKIE_METADATA": "zk://own:1/q"}
    assert BOOKIE.load(None, own, FLAGS).metadata == "zk://own:1/q"


def test_numbers_and_switches_are_read_from_text() -> None:
    variables = {"QUIRE_BOOKIE_DIE_WITH_PARENT": "yes", "QUIRE_BOOKIE_DRAIN_TIMEOUT_S": "2.5"}
    options = BOOKIE.load(None, variables, FLAGS)
    assert (options.die_with_parent, options.drain_timeout_s) == (True, 2.5)
    assert BOOKIE.load("[bookie]\ndrain_timeout_s = 3\n", {}, FLAGS).drain_timeout_s == 3.0


@pytest.mark.parametrize(
    ("text", "variables", "flags", "says"),
    [
        ("[bookie]\nprot = 1\n", {}, {}, "did you mean port"),
        ("[bokie]\nport = 1\n", {}, {}, "did you mean bookie"),
        (
            None,
            {"QUIRE_BOOKIE_CONECTIONS_MAX": "1"},
            {},
            "did you mean QUIRE_BOOKIE_CONNECTIONS_MAX",
        ),
        (None, {}, {"data_dirs": "x"}, "did you mean data_dir"),
        ("[bookie]\nzzzzzz = 1\n", {}, {}, "known are"),
        ("[bookie\n", {}, {}, "not TOML"),
        ("bookie = 1\n", {}, {}, "not a table"),
        ("[bookie]\nport = 65536\n", {}, {}, "from 0 to 65535"),
        ("[bookie]\nport = -1\n", {}, {}, "from 0 to 65535"),
        ('[bookie]\nport = "80"\n', {}, {}, "a whole number"),
        ("[bookie]\nport = 80.0\n", {}, {}, "a whole number"),
        ("[bookie]\nport = true\n", {}, {}, "a whole number"),
        ("[bookie]\ndie_with_parent = 1\n", {}, {}, "true or false"),
        ("[bookie]\nhost = 1\n", {}, {}, "a text"),
        ("[bookie]\ndrain_timeout_s = nan\n", {}, {}, "from 0 to 600"),
        ("[bookie]\ndrain_timeout_s = inf\n", {}, {}, "from 0 to 600"),
        (None, {"QUIRE_BOOKIE_PORT": "eighty"}, {}, "QUIRE_BOOKIE_PORT must be a whole number"),
        (None, {"QUIRE_BOOKIE_DIE_WITH_PARENT": "maybe"}, {}, "true or false"),
        (None, {}, {"data_dir": ""}, "data_dir is not set"),
        (None, {}, {"log_level": "loud"}, "--log-level must be one of"),
        (None, {}, {"location": "rack1"}, "location"),
        (None, {}, {"disk_low_mark": 0.9, "disk_high_mark": 0.8}, "disk_low_mark"),
        (None, {}, {"frame_bytes_max": 65536, "entry_bytes_max": 65536}, "frame_bytes_max"),
        (None, {}, {"authorizer": "on"}, "--authorizer must be one of off, record, enforce"),
        (
            None,
            {},
            {"client_logins": "on"},
            "--client-logins must be one of off, optional, required",
        ),
        ('[bookie]\nauthorizer = "on"\n', {}, {}, r"\[bookie\] authorizer must be one of"),
        (None, {"QUIRE_BOOKIE_TLS": "on"}, {}, "QUIRE_BOOKIE_TLS must be one of"),
        (None, {}, {"authorizer": "record"}, "clients prove nothing: set tls"),
        (None, {}, {"super_users": "alice"}, "super_users: 'alice' is not a principal"),
    ],
)
def test_error_names_the_wrong_option(
    text: str | None,
    variables: dict[str, str],
    flags: dict[str, str | int | float | bool],
    says: str,
) -> None:
    with pytest.raises(OptionError, match=says):
        BOOKIE.load(text, variables, {**FLAGS, **flags})


TLS = {
    "tls": "required",
    "tls_cert_file": "c.pem",
    "tls_key_file": "k.pem",
    "tls_ca_file": "a.pem",
}


@pytest.mark.parametrize(
    ("changes", "mode", "says"),
    [
        ({}, "enforce", ""),
        ({}, "record", ""),
        ({"tls": "optional"}, "record", ""),
        ({"tls_client_certificates": "requested"}, "record", ""),
        ({"tls": "optional"}, "enforce", "clients that prove nothing could connect"),
        (
            {"tls_client_certificates": "requested"},
            "enforce",
            "clients that prove nothing could connect",
        ),
        ({"tls_client_certificates": "none"}, "record", "clients prove nothing"),
    ],
)
def test_roles_need_certificates_of_clients(changes: dict[str, str], mode: str, says: str) -> None:
    flags = {**FLAGS, **TLS, **changes, "authorizer": mode}
    if says:
        with pytest.raises(OptionError, match=says):
            BOOKIE.load(None, {}, flags)
        return
    options = BOOKIE.load(None, {}, {**flags, "super_users": "User:CN=a,O=b;User:c"})
    assert options.roles.super_users == ("User:CN=a,O=b", "User:c")
    assert OWNERS_FEATURE in options.features
    assert OWNERS_FEATURE not in BOOKIE.load(None, {}, FLAGS).features


@pytest.mark.parametrize(
    ("changes", "mode", "says"),
    [
        ({"client_logins": "required"}, "enforce", ""),
        ({"client_logins": "required", **TLS, "tls_client_certificates": "none"}, "enforce", ""),
        ({"client_logins": "optional", **TLS}, "enforce", ""),
        ({"client_logins": "optional"}, "record", ""),
        ({"client_logins": "optional"}, "enforce", "clients that prove nothing could connect"),
    ],
)
def test_roles_need_certificates_or_logins(changes: dict[str, str], mode: str, says: str) -> None:
    flags = {**FLAGS, **changes, "authorizer": mode}
    if says:
        with pytest.raises(OptionError, match=says):
            BOOKIE.load(None, {}, flags)
        return
    options = BOOKIE.load(None, {}, flags)
    assert options.client_logins == changes["client_logins"]
    assert options.roles.mode == mode


@pytest.mark.parametrize("value", ['["Geheim"]', '{ secret = "Geheim" }', "4711"])
def test_a_secret_in_the_place_of_its_file_is_not_in_the_error(value: str) -> None:
    with pytest.raises(OptionError, match="admin_token_file must be a text") as caught:
        BOOKIE.load(f"[bookie]\nadmin_token_file = {value}\n", {}, FLAGS)
    assert not {"Geheim", "4711"} & {*re.findall(r"\w+", str(caught.value))}


def test_limits_of_the_storage_and_the_server_come_from_the_options() -> None:
    defaults = BookieOptions(data_dir="/data")
    assert defaults.storage == StorageConfig()
    assert defaults.server == ServerLimits()
    options = BOOKIE.load(
        None, {}, {**FLAGS, "segment_bytes_max": 2**20, "read_bytes_max": 2**17, "port": 5}
    )
    assert options.storage == StorageConfig(segment_bytes_max=2**20)
    assert options.server == ServerLimits(read_bytes_max=2**17)


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
    for options in (one, two):
        assert (options.metadata, options.host) == ("zk://zk1:2181/quire", "10.0.0.5")
        assert (options.log_level, options.weight) == ("debug", 3)


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
        "[[bookie]] 2: admin_port is that of port: 3181",
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
        "[[bookie]] 3: data_dir is not set: give --data-dir, or data_dir in the file",
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
    ]
    (line,) = refusal("[bookie_defaults]\nport = 0\n" + TWO.partition("allow_plaintext = true")[2])
    assert line.startswith("[bookie_defaults] port would apply")


def test_invalid_tables_are_refused() -> None:
    assert refusal("bookie = [1]\n") == ["[[bookie]] 1 is not a table: write [[bookie]]"]
    assert refusal("[bookie]\n") == [
        "the configuration file has no [[bookie]] tables: write one for each bookie"
    ]


def test_flags_give_the_same_options_again() -> None:
    flags: dict[str, Value] = {"disk_low_mark": 0.5, "repair": False}
    first, _ = load_several(TWO, {"QUIRE_BOOKIE_DIE_WITH_PARENT": "true"}, flags)
    parser = argparse.ArgumentParser()
    add_option_flags(parser, BOOKIE)
    read = parser.parse_args(BOOKIE.flags_of(first))
    assert BOOKIE.load(None, {}, given_flags(read, BOOKIE)) == first
