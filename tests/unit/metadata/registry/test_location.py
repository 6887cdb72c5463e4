"""The place of a bookie follows from its location, and from its address if the location names no
host.
"""

import pytest

from metadata.ids import BookieId
from metadata.registry.location import Place, place_of, with_host_name
from metadata.registry.registration import BookieRegistration


@pytest.mark.parametrize(
    ("location", "address", "expected"),
    [
        ("/eu/r1/h2", "10.0.0.5", Place("/eu/r1", "h2")),
        ("/eu/r1/h2/", "10.0.0.5", Place("/eu/r1", "h2")),
        ("/eu/r1/default", "10.0.0.5", Place("/eu/r1", "10.0.0.5")),
        (
            "/default/default/default",
            "bookie-1.example",
            Place("/default/default", "bookie-1.example"),
        ),
        ("/default/default/default", "127.0.0.1", Place("/default/default", "localhost")),
        ("/default/default/default", "127.0.0.9", Place("/default/default", "localhost")),
        ("/default/default/default", "::1", Place("/default/default", "localhost")),
        ("/default/default/default", "localhost", Place("/default/default", "localhost")),
        (
            "h1",
            "10.0.0.5",
            Place("h1", "h1"),
        ),  # no bookie registers these two, but a reader must accept them
        ("", "10.0.0.5", Place("", "")),
    ],
)
def test_the_place_of_a_bookie(location: str, address: str, expected: Place) -> None:
    assert place_of(location, address) == expected
    assert BookieRegistration(BookieId("a"), address, 1, location=location).place == expected


@pytest.mark.parametrize(
    ("location", "name", "expected"),
    [
        ("/default/default/default", "vm-7", "/default/default/vm-7"),
        ("/eu/r1/default", "vm-7", "/eu/r1/vm-7"),
        ("/eu/default/h2", "vm-7", "/eu/default/h2"),
        ("/eu/r1/default", "", "/eu/r1/default"),
        ("/eu/r1/default", "a/b", "/eu/r1/default"),
        ("/eu/r1/default", "localhost", "/eu/r1/default"),
        ("/eu/r1/default", "localhost.localdomain", "/eu/r1/default"),
    ],
)
def test_an_unknown_host_gets_the_machines_name(location: str, name: str, expected: str) -> None:
    assert with_host_name(location, name) == expected
