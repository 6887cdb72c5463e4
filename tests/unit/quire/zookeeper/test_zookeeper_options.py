"""A ZooKeeper server refuses options that would not make one ensemble, or be open by accident."""

from pathlib import Path

import pytest

from quire.options import OptionError, Value
from quire.zookeeper.options import ZOOKEEPER, Member, parse_members
from quire.zookeeper.server import java_command, settings_of

THREE = "2=127.0.0.1:2889:3889 1=127.0.0.1:2888:3888 3=127.0.0.1:2890:3890"
FLAGS: dict[str, Value] = {"data_dir": "/srv/zookeeper"}


def test_members_are_in_the_order_of_their_numbers() -> None:
    members = parse_members("2=zk2.example:2888:3888 1=[::1]:2888:3888")
    assert members == (Member(1, "::1", 2888, 3888), Member(2, "zk2.example", 2888, 3888))
    assert members[0].setting == ("server.1", "[::1]:2888:3888")
    assert members[1].setting == ("server.2", "zk2.example:2888:3888")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zk1:2888:3888", "N=host:port:port"),
        ("1=zk1:2888", "N=host:port:port"),
        ("1=zk1:2888:3888;2181", "N=host:port:port"),
        ("1=zk1:2888:2888", "one port twice"),
        ("0=zk1:2888:3888", "the number 0"),
        ("256=zk1:2888:3888", "the number 256"),
        ("1=zk1:0:3888", "a port that does not exist"),
        ("1=zk1:2888:65536", "a port that does not exist"),
        ("1=zk1:2888:3888 1=zk2:2888:3888", "two servers have the number 1"),
    ],
)
def test_members_that_are_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_members(text)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"data_dir": ""}, "data_dir is not set"),
        ({"id": 1}, "id is 1 and servers is not set"),
        ({"servers": THREE}, "id is 0, and servers has 1, 2, 3"),
        ({"servers": THREE, "id": 4}, "id is 4, and servers has 1, 2, 3"),
        ({"servers": "1=a:1:2 2=b:1:2", "id": 1}, "both would be needed"),
        ({"servers": "here", "id": 1}, "servers: 'here'"),
        ({"host": "0.0.0.0"}, "host is 0.0.0.0"),
        ({"servers": "1=zk1:2888:3888", "id": 1}, "servers is zk1"),
        (
            {"servers": THREE, "id": 1, "peers_on_all_addresses": True},
            "servers is all addresses",
        ),
        ({"log_level": "loud"}, "--log-level"),
    ],
)
def test_options_that_are_refused(flags: dict[str, Value], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        ZOOKEEPER.load(None, {}, FLAGS | flags)


def test_other_machines_connect_where_that_is_wanted() -> None:
    text = '[zookeeper]\nhost = "0.0.0.0"\nallow_plaintext = true\n'
    variables = {"QUIRE_ZOOKEEPER_SERVERS": "1=zk1:2888:3888", "QUIRE_ZOOKEEPER_ID": "1"}
    options = ZOOKEEPER.load(text, variables, FLAGS)
    assert options.host == "0.0.0.0"
    assert options.members == (Member(1, "zk1", 2888, 3888),)


def test_the_settings_of_a_single_server() -> None:
    settings = settings_of(ZOOKEEPER.load(None, {}, FLAGS), Path("/srv/zookeeper"))
    assert settings["clientPortAddress"] == "127.0.0.1"
    assert settings["admin.enableServer"] == "false"
    assert (settings["autopurge.snapRetainCount"], settings["autopurge.purgeInterval"]) == (3, 1)
    assert (settings["tickTime"], settings["minSessionTimeout"]) == (2_000, 4_000)
    assert not {"initLimit", "server.1", "forceSync"} & set(settings)


def test_the_settings_of_a_server_of_three() -> None:
    options = ZOOKEEPER.load(None, {}, FLAGS | {"servers": THREE, "id": 2, "heap_mb": 128})
    settings = settings_of(options, Path("/srv/zookeeper"))
    assert settings["server.3"] == "127.0.0.1:2890:3890"
    assert (settings["initLimit"], settings["syncLimit"]) == (30, 5)
    assert settings["cnxTimeout"] == 5_000
    assert settings["fastleader.maxNotificationInterval"] == 60_000
    assert settings["quorumListenOnAllIPs"] == "false"
    command = java_command(Path("java"), [Path("a.jar"), Path("b.jar")], Path("p"), options)
    assert "-Xmx128m" in command
    assert "a.jar:b.jar" in command
