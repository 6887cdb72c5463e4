"""Options come from a file, variables and flags; errors name the option and suggest a name."""

import re

import pytest

from bookie.config import StorageConfig
from bookie.options import OPTIONS, BookieOptions, load_options
from bookie.server.server_limits import ServerLimits
from metadata.registry.registration import OWNERS_FEATURE
from quire.server.errors import OptionError

FLAGS = {"data_dir": "/data"}


def test_defaults_are_within_their_own_bounds() -> None:
    options = load_options(None, {}, FLAGS)
    assert options == BookieOptions(data_dir="/data")
    for name, info in OPTIONS.items():
        again = load_options(None, {}, {**FLAGS, name: getattr(options, name)})
        assert again == options
        assert info.help


def test_flags_override_variables_and_variables_override_the_file() -> None:
    text = '[bookie]\ndata_dir = "/file"\nport = 1\nadmin_port = 1\nconnections_max = 7\n'
    variables = {"QUIRE_BOOKIE_PORT": "2", "QUIRE_BOOKIE_ADMIN_PORT": "2"}
    options = load_options(text, variables, {"admin_port": 3})
    assert (options.data_dir, options.connections_max) == ("/file", 7)
    assert (options.port, options.admin_port) == (2, 3)


def test_metadata_has_a_variable_for_every_program() -> None:
    options = load_options(None, {"QUIRE_METADATA": "zk://h:1/q", "QUIRE_OTHER": "x"}, FLAGS)
    assert options.metadata == "zk://h:1/q"


def test_numbers_and_switches_are_read_from_text() -> None:
    variables = {"QUIRE_BOOKIE_DIE_WITH_PARENT": "yes", "QUIRE_BOOKIE_DRAIN_TIMEOUT_S": "2.5"}
    options = load_options(None, variables, FLAGS)
    assert (options.die_with_parent, options.drain_timeout_s) == (True, 2.5)
    assert load_options("[bookie]\ndrain_timeout_s = 3\n", {}, FLAGS).drain_timeout_s == 3.0


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
        (None, {}, {"log_level": "loud"}, "log_level"),
        (None, {}, {"location": "rack1"}, "location"),
        (None, {}, {"disk_low_mark": 0.9, "disk_high_mark": 0.8}, "disk_low_mark"),
        (None, {}, {"frame_bytes_max": 65536, "entry_bytes_max": 65536}, "frame_bytes_max"),
        (None, {}, {"authorizer": "on"}, "authorizer must be one of off, record, enforce"),
        (None, {}, {"client_logins": "on"}, "client_logins must be one of off, optional, required"),
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
        load_options(text, variables, {**FLAGS, **flags})


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
            load_options(None, {}, flags)
        return
    options = load_options(None, {}, {**flags, "super_users": "User:CN=a,O=b;User:c"})
    assert options.roles.super_users == ("User:CN=a,O=b", "User:c")
    assert OWNERS_FEATURE in options.features
    assert OWNERS_FEATURE not in load_options(None, {}, FLAGS).features


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
            load_options(None, {}, flags)
        return
    options = load_options(None, {}, flags)
    assert options.login_mode == changes["client_logins"]
    assert options.roles.mode == mode


@pytest.mark.parametrize("value", ['["Geheim"]', '{ secret = "Geheim" }', "4711"])
def test_a_secret_in_the_place_of_its_file_is_not_in_the_error(value: str) -> None:
    with pytest.raises(OptionError, match="admin_token_file must be a text") as caught:
        load_options(f"[bookie]\nadmin_token_file = {value}\n", {}, FLAGS)
    assert not {"Geheim", "4711"} & {*re.findall(r"\w+", str(caught.value))}


def test_limits_of_the_storage_and_the_server_come_from_the_options() -> None:
    defaults = BookieOptions(data_dir="/data")
    assert defaults.storage == StorageConfig()
    assert defaults.server == ServerLimits()
    options = load_options(
        None, {}, {**FLAGS, "segment_bytes_max": 2**20, "read_bytes_max": 2**17, "port": 5}
    )
    assert options.storage == StorageConfig(segment_bytes_max=2**20)
    assert options.server == ServerLimits(read_bytes_max=2**17)
