"""Checks of single topic settings.

Leaves the settings themselves to `topic_config_table`, and their combined meaning to `log_config`.

Invariant: an unknown setting is refused. A setting without effect is stored and shown as such; the
strict form of a check accepts only its default.

Source: KIP-226 and KIP-339, as Kafka's tools use them.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.settings.topic_config_table import (
    DEFINITIONS,
    REPLICATION_FACTOR,
    ConfigDefinition,
    ConfigType,
)

OUR_PREFIX: Final = "quire."
"""Prefix of names that are stored with a topic's settings and that clients do not see."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of topics, from the configuration of the brokers."""

    partitions: int = 1
    replication_factor: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)
    is_strict: bool = False
    """Whether settings without effect are refused."""

    def value(self, name: str) -> str | None:
        """Return the default of a setting: the brokers' default, else the built-in one."""
        return self.configs.get(name, DEFINITIONS[name].default)


def check_configs(configs: Mapping[str, str], *, is_strict: bool = False) -> None:
    """Refuse settings that are unknown, malformed or out of range; with `is_strict` also those
    without effect.

    Raises TopicError with INVALID_CONFIG.
    """
    for name, value in configs.items():
        check_config(name, value, is_strict=is_strict)


def is_settable(definition: ConfigDefinition, *, is_strict: bool) -> bool:
    """Return whether a setting can have another value than its default."""
    return not definition.is_fixed and (definition.has_effect or not is_strict)


def without_effect(configs: Mapping[str, str]) -> list[str]:
    """Return the names of settings that have no effect here."""
    return [name for name in configs if name in DEFINITIONS and not DEFINITIONS[name].has_effect]


def check_config(name: str, value: str, *, is_strict: bool = False) -> None:
    """Refuse one setting, as `check_configs` does."""
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise refused_config(_unknown(name))
    if not is_settable(definition, is_strict=is_strict):
        if value.strip() != definition.default:
            raise refused_config(
                f"{name} cannot be {value!r}: it is always {definition.default!r}. "
                f"{definition.meaning}"
            )
        return
    match definition.kind:
        case ConfigType.BOOLEAN:
            if value.strip().lower() not in ("true", "false"):
                raise refused_config(f"{name} must be true or false, not {value!r}")
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            _check_number(definition, value)
        case ConfigType.LIST:
            _check_values(definition, list_of(value), value)
        case ConfigType.STRING:
            _check_values(definition, [value], value)
        case ConfigType.DOUBLE:
            _check_share(definition, value)


def list_of(value: str) -> list[str]:
    """Return the elements of a list setting."""
    return [part.strip() for part in value.split(",") if part.strip()]


def is_true(value: str) -> bool:
    """Return the value of a checked boolean setting."""
    return value.strip().lower() == "true"


def changed_configs(
    current: Mapping[str, str], changes: Mapping[str, str | None], *, is_strict: bool = False
) -> dict[str, str]:
    """Return a topic's settings with `changes` applied; None resets a setting to its default."""
    kept = {name: value for name, value in current.items() if name not in changes}
    new = {name: value for name, value in changes.items() if value is not None}
    check_configs(new, is_strict=is_strict)
    return dict(sorted((kept | new).items()))


def own_configs(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored settings that clients see and may alter."""
    return {name: value for name, value in stored.items() if not _is_ours(name)}


def kept_configs(stored: Mapping[str, str]) -> dict[str, str]:
    """Return stored settings that clients cannot alter: replication factor and internal ones."""
    return {name: value for name, value in stored.items() if _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name == REPLICATION_FACTOR or name.startswith(OUR_PREFIX)


def _check_number(definition: ConfigDefinition, value: str) -> None:
    try:
        number = int(value.strip())
    except ValueError:
        raise refused_config(f"{definition.name} must be an integer, not {value!r}") from None
    if not definition.minimum <= number <= definition.maximum:
        raise refused_config(
            f"{definition.name} must be {definition.minimum} to {definition.maximum}, not {number}"
        )


def _check_share(definition: ConfigDefinition, value: str) -> None:
    try:
        number = float(value.strip())
    except ValueError:
        raise refused_config(f"{definition.name} must be a number, not {value!r}") from None
    if not definition.minimum <= number <= definition.maximum:  # NaN fails too
        raise refused_config(
            f"{definition.name} must be {definition.minimum} to {definition.maximum}, not {value}"
        )


def _check_values(definition: ConfigDefinition, given: list[str], value: str) -> None:
    if not definition.values:
        return
    if not given or not all(each in definition.values for each in given):
        offered = " or ".join(definition.values)
        raise refused_config(f"{definition.name} must be {offered}, not {value!r}")


def _unknown(name: str) -> str:
    if name == REPLICATION_FACTOR:
        return f"{name} can only be set when a topic is created"
    near = difflib.get_close_matches(name, DEFINITIONS, n=1)
    hint = f"did you mean {near[0]}?" if near else "docs/topics.md lists all topic settings"
    return f"there is no topic setting {name!r}: {hint}"


def refused_config(text: str) -> TopicError:
    """Return the error for a setting that cannot be used."""
    return TopicError(ErrorCode.INVALID_CONFIG, text)
