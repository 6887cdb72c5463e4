"""Matches topic names with the regular expressions that consumers subscribe by.

Leaves when to look to `consumer_group`.

Clients write RE2; `re` runs them. What RE2 does not have (look-around, references back) is refused,
and so is what `re` may need exponential time for: repeating a group, and more than
REPEATS_MAX repeats without a bound. A name is matched as a whole.

Source: KIP-848, KIP-1082 (SubscribedTopicRegex).
"""

import re
from collections.abc import Iterable
from typing import Final

from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode

PATTERN_LENGTH_MAX: Final = 1_000
REPEATS_MAX: Final = 3

_TOKEN: Final = re.compile(
    r"""
    (?P<escape>\\.)
    | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<special>\(\?(?!:|P<|[imsU]+\)))
    | (?P<open>\((?:\?:|\?P<\w+>)?)
    | (?P<close>\))
    | (?P<repeat>[*+]|\{\d*(?:,\d*)?\})
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_REFERENCE: Final = re.compile(r"\\[1-9]")


def compile_pattern(text: str) -> "re.Pattern[str]":
    """Return the expression. Raises TopicError INVALID_REGULAR_EXPRESSION."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise _refused(f"longer than {PATTERN_LENGTH_MAX} characters")
    repeats, before = 0, ""
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup or ""
        if kind == "special" or (kind == "escape" and _REFERENCE.match(token.group())):
            raise _refused(f"{token.group()} is not supported")
        if kind == "repeat":
            if before == "close":
                raise _refused("a group cannot be repeated")
            repeats += 1
        before = kind
    if repeats > REPEATS_MAX:
        raise _refused(f"more than {REPEATS_MAX} repeats")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise _refused(str(error)) from error


def matching_topics(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the topics that a pattern, compiled before, matches; never internal ones."""
    pattern = re.compile(text)
    return tuple(
        name for name in sorted(names) if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
    )


def _refused(text: str) -> TopicError:
    return TopicError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex: {text}")
