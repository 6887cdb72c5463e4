"""Profiles of rights: users with the rules that the cases of rights give them.

A rule is a text such as `TOPIC READ`, about all names of the run, by their prefix; `deny TOPIC
READ` denies; `TOPIC=shared READ` is about one name, `TOPIC=* READ` about all names.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.differential.security.acl_cases import (
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    TOPIC,
    TRANSACTION,
    binding,
)
from tests.differential.wire import Tree

KINDS: Final = {"TOPIC": TOPIC, "GROUP": GROUP, "CLUSTER": CLUSTER, "TRANSACTION": TRANSACTION}
OPERATIONS: Final = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
LOOPBACK: Final = "127.0.0.1"
ELSEWHERE: Final = "10.9.8.7"
SINGLE: Final = (
    *(
        f"TOPIC {each}"
        for each in (
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "ALL",
        )
    ),
    *(
        f"GROUP {each}"
        for each in ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL")
    ),
    *(f"TRANSACTION {each}" for each in ("WRITE", "DESCRIBE", "ALL")),
    *(
        f"CLUSTER {each}"
        for each in (
            "CREATE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
            "ALL",
        )
    ),
)
"""Profiles with exactly one right."""
TOGETHER: Final = (
    ("TOPIC READ", "GROUP READ"),
    ("TOPIC DESCRIBE", "GROUP READ"),
    ("TOPIC DESCRIBE", "GROUP DESCRIBE"),
    ("TOPIC READ", "GROUP DELETE"),
    ("TOPIC READ", "GROUP READ", "TRANSACTION WRITE"),
    ("GROUP READ", "TRANSACTION WRITE"),
    ("TOPIC WRITE", "TRANSACTION WRITE"),
    ("TOPIC WRITE", "TRANSACTION DESCRIBE"),
    ("TOPIC DESCRIBE", "TRANSACTION DESCRIBE"),
    ("TOPIC DESCRIBE", "CLUSTER CREATE"),
    ("TOPIC DESCRIBE", "TOPIC CREATE"),
    ("TOPIC CREATE", "TOPIC DESCRIBE_CONFIGS"),
    ("TOPIC DESCRIBE", "TOPIC DELETE"),
    ("TOPIC DESCRIBE", "CLUSTER DESCRIBE"),
    ("TOPIC DESCRIBE", "CLUSTER ALTER"),
    ("TOPIC WRITE", "CLUSTER IDEMPOTENT_WRITE"),
)
EVERYTHING: Final = ("TOPIC ALL", "GROUP ALL", "TRANSACTION ALL", "CLUSTER ALL")
DENIED: Final = (
    "TOPIC READ",
    "TOPIC WRITE",
    "TOPIC CREATE",
    "TOPIC DELETE",
    "TOPIC ALTER",
    "TOPIC DESCRIBE",
    "TOPIC DESCRIBE_CONFIGS",
    "TOPIC ALTER_CONFIGS",
    "TOPIC ALL",
    "TOPIC=shared ALL",
    "TOPIC=* WRITE",
    "GROUP READ",
    "GROUP DELETE",
    "GROUP DESCRIBE",
    "TRANSACTION WRITE",
    "TRANSACTION DESCRIBE",
    "CLUSTER CREATE",
    "CLUSTER ALTER",
    "CLUSTER DESCRIBE",
    "CLUSTER CLUSTER_ACTION",
    "CLUSTER DESCRIBE_CONFIGS",
    "CLUSTER IDEMPOTENT_WRITE",
)
"""Rules that are denied to a user that may do everything else."""
NAMED: Final[Mapping[str, Sequence[str]]] = {
    "nothing": (),
    "everything": EVERYTHING,
    "TOPIC=shared READ": ("TOPIC=shared READ",),
    "TOPIC=shared WRITE": ("TOPIC=shared WRITE",),
    "TOPIC=* READ": ("TOPIC=* READ",),
    "TOPIC=* ALL": ("TOPIC=* ALL",),
    "TOPIC=elsewhere WRITE": ("TOPIC=elsewhere WRITE",),
    "TOPIC=shared WRITE, denied for the prefix": ("TOPIC=shared WRITE", "deny TOPIC WRITE"),
    "TOPIC READ from this host": (f"TOPIC READ {LOOPBACK}",),
    "TOPIC READ from another host": (f"TOPIC READ {ELSEWHERE}",),
    "everything, TOPIC ALL denied to another host": (
        *EVERYTHING,
        f"deny TOPIC ALL {ELSEWHERE}",
    ),
    "everything, TOPIC ALL denied to this host": (*EVERYTHING, f"deny TOPIC ALL {LOOPBACK}"),
}
PROFILES: Final[Mapping[str, Sequence[str]]] = {
    **NAMED,
    **{each: (each,) for each in SINGLE},
    **{" + ".join(each): each for each in TOGETHER},
    **{f"everything but {each}": (*EVERYTHING, f"deny {each}") for each in DENIED},
}


def rule(text: str, prefix: str, user: str) -> Mapping[str, Tree]:
    """Return the rule of a text for a user, about names with the prefix of the run."""
    words = text.removeprefix("deny ").split(" ")
    kind, _, name = words[0].partition("=")
    pattern = LITERAL if name or kind == "CLUSTER" else PREFIXED
    if kind == "CLUSTER":
        name = CLUSTER_NAME
    elif name != "*":
        name = prefix + name
    return binding(
        KINDS[kind],
        name,
        pattern=pattern,
        principal=f"User:{user}",
        host=words[2] if len(words) > 2 else "*",
        operation=OPERATIONS[words[1]],
        permission=DENY if text.startswith("deny ") else ALLOW,
    )
