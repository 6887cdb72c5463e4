"""Matching of topic names with the regular expressions of subscriptions.

Leaves the times of matching to `consumer_group`.

Clients write RE2 syntax, and RE2 runs the expressions in time linear in the length of the name, for
any expression. An expression must match the complete name.

Source: KIP-848, KIP-1082 (SubscribedTopicRegex).
"""

from collections.abc import Iterable
from typing import Final

import re2

from broker_layer.coordinator_partitions import INTERNAL_TOPICS
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode

PATTERN_LENGTH_MAX: Final = 1_000
PATTERN_MEMORY_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a compiled expression; nested repetitions that need more are refused."""

_OPTIONS: Final = re2.Options()
_OPTIONS.max_mem = PATTERN_MEMORY_BYTES_MAX
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False


def check_pattern(text: str) -> None:
    """Check that a pattern is valid. Raises TopicError INVALID_REGULAR_EXPRESSION."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise _refused(f"longer than {PATTERN_LENGTH_MAX} characters")
    try:
        re2.compile(text, _OPTIONS)
    except re2.error as error:
        [reason] = error.args
        raise _refused(reason.decode(errors="replace")) from error


def matching_topics(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the topics that a valid pattern matches; never internal ones."""
    pattern = re2.compile(text, _OPTIONS)
    return tuple(
        name for name in sorted(names) if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
    )


def _refused(text: str) -> TopicError:
    return TopicError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex: {text}")
