"""Valid and invalid metadata URIs."""

import pytest

from metadata.errors import InvalidUriError, MetadataError
from metadata.store.uri import HOSTS_MAX, parse_metadata_uri, parse_zookeeper_uri


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk://h1", (("h1", 2181),), ""),
        ("zk://h1:2182/", (("h1", 2182),), ""),
        ("zk://h1:1,h2:2/quire", (("h1", 1), ("h2", 2)), "/quire"),
        ("zk://127.0.0.1:41873/a/b-c.d_e/", (("127.0.0.1", 41873),), "/a/b-c.d_e"),
        ("zk://h1:65535", (("h1", 65_535),), ""),
        (f"zk://a_b.{'c' * 63}.example.", ((f"a_b.{'c' * 63}.example.", 2181),), ""),
        ("zk://[::1]:5,[fe80::2]", (("::1", 5), ("fe80::2", 2181)), ""),
    ],
)
def test_uris(text: str, hosts: tuple[tuple[str, int], ...], chroot: str) -> None:
    uri = parse_metadata_uri(text)
    assert (uri.hosts, uri.chroot) == (hosts, chroot)
    assert parse_metadata_uri(uri.text) == uri


@pytest.mark.parametrize("file", ["client.toml", "/etc/quire/client.toml", "a=b?c.toml"])
def test_a_uri_may_name_the_clients_file(file: str) -> None:
    uri = parse_metadata_uri(f"zk://h1/quire?client={file}")
    assert (uri.client_file, uri.chroot) == (file, "/quire")
    assert uri.text == f"zk://h1:2181/quire?client={file}"
    assert parse_metadata_uri(f"zk://h1?client={file}").client_file == file


@pytest.mark.parametrize(
    "text",
    [
        "zk://h1/quire?",
        "zk://h1/quire?client",
        "zk://h1/quire?client=",
        "zk://h1/quire?cilent=file",
        "",
        "h1:2181",
        "http://h1:2181",
        "zk://",
        "zk:///quire",
        "zk://h1:",
        "zk://h1:0",
        "zk://h1:65536",
        "zk://h1:99999999",
        "zk://h1:-1",
        "zk://h1,,h2",
        "zk://::1:5",
        "zk://h1/a//b",
        "zk://h1/../b",
        "zk://h1/a b",
        "zk://h 1",
        "zk://h1..example",
        "zk://.h1",
        "zk://" + "h" * 64,
        "zk://" + ",".join(["h"] * 33),
    ],
)
def test_an_invalid_uri_says_why(text: str) -> None:
    with pytest.raises(InvalidUriError) as caught:
        parse_metadata_uri(text)
    assert isinstance(caught.value, MetadataError)
    assert isinstance(caught.value, ValueError)
    assert "zk://" in str(caught.value)


def test_a_uri_lists_at_most_the_maximum_number_of_servers() -> None:
    servers = [f"h{number}" for number in range(HOSTS_MAX)]
    assert len(parse_metadata_uri(f"zk://{','.join(servers)}").hosts) == HOSTS_MAX
    with pytest.raises(InvalidUriError):
        parse_metadata_uri(f"zk://{','.join([*servers, 'one-more'])}")


@pytest.mark.parametrize(
    "text",
    [
        "zk://user:Geheim@h1/quire",
        "zk://h1,user:Geheim@h2:1/quire?client=file",
        "zk://h1/quire?password=Geheim",
        "zk://h1?password=Geheim&client=file",
        "Geheim@h1",
    ],
)
def test_a_password_in_a_uri_is_not_in_the_error(text: str) -> None:
    with pytest.raises(InvalidUriError) as caught:
        parse_metadata_uri(text)
    assert "Geheim" not in f"{caught.value} {caught.value.uri} {caught.value.why}"


def test_gateways() -> None:
    where = parse_metadata_uri("gateway://one,two:5?client=/etc/alice.toml")
    assert where.hosts == (("one", 2188), ("two", 5))
    assert where.text == "gateway://one:2188,two:5?client=/etc/alice.toml"
    assert parse_metadata_uri(where.text) == where
    with pytest.raises(InvalidUriError, match="has no path"):
        parse_metadata_uri("gateway://one/quire")
    with pytest.raises(InvalidUriError, match="must start with zk://"):
        parse_zookeeper_uri("gateway://one")
    assert parse_zookeeper_uri("zk://one/quire") == parse_metadata_uri("zk://one/quire")
