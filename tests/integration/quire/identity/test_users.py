"""Users of a real broker: administered by librdkafka's client and by commands, one view of both."""

from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)

from quire.errors import ExitCode
from tests.integration.quire.command import RunningCluster, start_cluster
from tests.until import WAIT_S

ITERATIONS = 4_096
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("users"), 3, brokers=1)
    yield running
    running.stop()


@pytest.fixture
def admin(cluster: RunningCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.told["brokers"][0]["address"]})


def upsertion(
    name: str, mechanism: ScramMechanism = SHA_256, iterations: int = ITERATIONS
) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(
        name, ScramCredentialInfo(mechanism, iterations), b"pencil", b"0123456789abcdef"
    )


def alter(
    admin: AdminClient, *alterations: UserScramCredentialUpsertion | UserScramCredentialDeletion
) -> dict[str, int]:
    """Alter users; return the error code of each."""
    codes = {}
    for name, future in admin.alter_user_scram_credentials(list(alterations)).items():
        try:
            future.result(WAIT_S)
            codes[name] = 0
        except KafkaException as error:
            codes[name] = error.args[0].code()
    return codes


def described(admin: AdminClient, *names: str) -> dict[str, list[tuple[ScramMechanism, int]]]:
    """Return the mechanisms and iterations of these users; of all without a name."""
    if not names:
        everything = admin.describe_user_scram_credentials()
        assert isinstance(everything, Future)
        found = everything.result(WAIT_S)
    else:
        futures = admin.describe_user_scram_credentials(list(names))
        assert isinstance(futures, dict)
        found = {name: future.result(WAIT_S) for name, future in futures.items()}
    return {name: shown(each) for name, each in found.items()}


def shown(user: UserScramCredentialsDescription) -> list[tuple[ScramMechanism, int]]:
    infos = user.scram_credential_infos
    return [(info.mechanism, info.iterations) for info in infos]


def test_a_client_and_commands_administer_the_same_users(
    cluster: RunningCluster, admin: AdminClient
) -> None:
    assert described(admin) == {}
    asked = (upsertion("alice"), upsertion("alice", SHA_512, 8_192), upsertion("bob"))
    assert alter(admin, *asked) == {"alice": 0, "bob": 0}
    assert described(admin, "alice") == {"alice": [(SHA_256, 4_096), (SHA_512, 8_192)]}
    assert cluster.json("user", "show", "alice") == {
        "user": "alice",
        "iterations": {"SCRAM-SHA-256": 4_096, "SCRAM-SHA-512": 8_192},
    }
    words = ("user", "add", "carol/ü", "--password-file", "-", "--mechanism", "SCRAM-SHA-512")
    cluster.json(*words, "--iterations", "5000", stdin=b"pencil\n")
    assert described(admin, "carol/ü") == {"carol/ü": [(SHA_512, 5_000)]}
    cluster.json("user", "remove", "bob")
    assert sorted(described(admin)) == ["alice", "carol/ü"]
    assert alter(admin, UserScramCredentialDeletion("carol/ü", SHA_512)) == {"carol/ü": 0}
    assert [each["user"] for each in cluster.json("user", "list")] == ["alice"]
    assert cluster.run("user", "show", "carol/ü").returncode == ExitCode.NOT_FOUND
    ends = [UserScramCredentialDeletion("alice", mechanism) for mechanism in (SHA_256, SHA_512)]
    assert alter(admin, *ends) == {"alice": 0}
    assert described(admin) == {}


def test_a_client_learns_why_it_is_refused(admin: AdminClient) -> None:
    asked = (
        upsertion("low", iterations=10),
        UserScramCredentialDeletion("x", SHA_256),
        upsertion("ok"),
    )
    assert alter(admin, *asked) == {
        "low": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "x": KafkaError.RESOURCE_NOT_FOUND,
        "ok": 0,
    }
    with pytest.raises(KafkaException) as refused:
        described(admin, "low")
    assert refused.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND
    assert described(admin, "ok") == {"ok": [(SHA_256, ITERATIONS)]}
    assert alter(admin, UserScramCredentialDeletion("ok", SHA_256)) == {"ok": 0}
