"""Scenarios of Kafka's tools for rights and quotas, which need brokers that enforce rights.

Leaves the other tools to `kafka_tools`.
"""

from typing import Final

from tests.kafka.endpoint import Endpoint
from tests.kafka.kafka_tools import CONFIGS, TOOLS, tool
from tests.kafka.scenario import Scenario, check, fresh

ACLS: Final = f"{TOOLS}.AclCommand"


def acls(endpoint: Endpoint) -> None:
    """AclCommand adds rules, literal and prefixed, lists them by resource, and removes them."""
    topic, user = fresh("topic"), f"User:{fresh('user')}"
    where = ("--topic", topic)
    tool(ACLS, endpoint, "--add", "--allow-principal", user, "--producer", *where)
    text = tool(ACLS, endpoint, "--list", *where)
    check(all(each in text for each in (user, "WRITE", "DESCRIBE", "CREATE")), text)
    prefixed = ("--resource-pattern-type", "prefixed", "--topic", topic[:6])
    denied = ("--deny-principal", user, "--operation", "Read", "--deny-host", "10.0.0.7")
    tool(ACLS, endpoint, "--add", *denied, *prefixed)
    text = tool(ACLS, endpoint, "--list", "--topic", topic, "--resource-pattern-type", "match")
    check("PREFIXED" in text and "DENY" in text and "10.0.0.7" in text, text)
    text = tool(ACLS, endpoint, "--list", "--principal", user)
    check(user in text, text)
    for options in (("--allow-principal", user, "--producer", *where), (*denied, *prefixed)):
        tool(ACLS, endpoint, "--remove", "--force", *options)
    check(user not in tool(ACLS, endpoint, "--list"), "still there")


def quotas(endpoint: Endpoint) -> None:
    """ConfigCommand sets quotas of a user and of a client of it, shows and removes them."""
    entity = ("--entity-type", "users", "--entity-name", fresh("user"))
    client = ("--entity-type", "clients", "--entity-name", fresh("client"))
    for names in (entity, (*entity, *client)):
        tool(CONFIGS, endpoint, "--alter", *names, "--add-config", "producer_byte_rate=1048576")
        text = tool(CONFIGS, endpoint, "--describe", *names)
        check("producer_byte_rate=1048576" in text, text)
        tool(CONFIGS, endpoint, "--alter", *names, "--delete-config", "producer_byte_rate")
        text = tool(CONFIGS, endpoint, "--describe", *names)
        check("producer_byte_rate" not in text, text)


SCENARIOS: Final = (
    Scenario("Kafka's tools", "rights", acls),
    Scenario("Kafka's tools", "quotas", quotas),
)
