"""The sentence about a rolling upgrade, and the oldest version."""

from quire.cli.cluster import (
    NAMED_MAX,
    ServerVersion,
    oldest_build,
    upgrade_sentence,
)


def servers(*builds: str) -> list[ServerVersion]:
    """Return bookies a, b, ... of these versions."""
    return [
        ServerVersion("bookie", chr(ord("a") + number), build, "1-1")
        for number, build in enumerate(builds)
    ]


def test_a_complete_upgrade() -> None:
    assert upgrade_sentence(servers("0.9.0", "0.9.0")) == "All 2 servers run 0.9.0."
    assert upgrade_sentence(servers("0.9.0")) == "The server runs 0.9.0."
    assert upgrade_sentence([]) == "No server is up."
    assert oldest_build([]) is None


def test_an_upgrade_that_is_under_way_names_the_servers_that_are_left() -> None:
    found = servers("0.10.0", "0.9.0", "0.10.0", "0.9.0")
    assert upgrade_sentence(found) == "2 of 4 servers still run 0.9.0: bookie b, bookie d."
    assert oldest_build(found) == "0.9.0", "numbers are compared, not texts"


def test_servers_of_several_older_versions_are_named_with_theirs() -> None:
    found = servers("0.9.0", "0.7.0", "0.8.0")
    assert oldest_build(found) == "0.7.0"
    assert upgrade_sentence(found) == (
        "2 of 3 servers do not run 0.9.0 yet: bookie b (0.7.0), bookie c (0.8.0)."
    )


def test_the_sentence_names_a_limited_number_of_servers() -> None:
    found = servers("2", *["1"] * (NAMED_MAX + 3))
    assert upgrade_sentence(found).endswith(", and 3 more.")
