"""Principal: who a client is, by its name or by its certificate. Pure.

Format: `User:<name>`, as Kafka writes it. The name of a client that proved nothing is `ANONYMOUS`.

Format of the subject: RFC 2253, the most specific part first: `CN=alice,OU=team,O=company`. Format
of the rules, which are separated by commas and tried in order: `DEFAULT` takes the whole subject;
`RULE:pattern/replacement/` replaces a subject that the pattern matches completely, and `/L` or `/U`
at the end makes it lower or upper case. `$1` in a replacement is a group of the pattern.

Source: Kafka's `ssl.principal.mapping.rules` (KIP-371).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity of a client."""

    name: str
    kind: str = USER

    @property
    def text(self) -> str:
        """The principal as it is stored and shown."""
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("ANONYMOUS")


def parse_principal(text: str) -> Principal:
    """Parse `User:<name>`. Raises ValueError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal: write User:NAME")
    return Principal(name, kind)


RULES_MAX: Final = 100
SUBJECT_CHARACTERS_MAX: Final = 1_024
"""Longest subject that a pattern is matched with; a longer one is anonymous."""
DEFAULT_RULES: Final = "DEFAULT"

_SHORT_NAMES: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_RULE: Final = re.compile(r"RULE:((?:[^/\\]|\\.)*)/((?:[^/\\]|\\.)*)/([LU]?)")
_GROUP: Final = re.compile(r"\$(\d)")
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule; without a pattern it takes the whole subject."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    letters: str = ""
    """`L`, `U`, or nothing."""

    def apply(self, subject: str) -> str | None:
        """Return the name for a subject; None if the rule does not match."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        name = _GROUP.sub(lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.letters, name)


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Parse rules; empty text means `DEFAULT`. Raises ValueError."""
    rules: list[MappingRule] = []
    rest = text.strip() or DEFAULT_RULES
    while rest:
        if rest.startswith(DEFAULT_RULES):
            rules.append(MappingRule())
            rest = rest[len(DEFAULT_RULES) :]
        elif match := _RULE.match(rest):
            rules.append(_rule(match[1], match[2], match[3]))
            rest = rest[match.end() :]
        else:
            raise ValueError(f"{rest!r} is no rule: write DEFAULT or RULE:pattern/replacement/[LU]")
        rest = rest.lstrip()
        if rest and not rest.startswith(","):
            raise ValueError(f"{rest!r} follows a rule: separate rules by commas")
        rest = rest.removeprefix(",").lstrip()
    if len(rules) > RULES_MAX:
        raise ValueError(f"there are {len(rules)} mapping rules: use at most {RULES_MAX}")
    return tuple(rules)


def _rule(pattern: str, replacement: str, letters: str) -> MappingRule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is no pattern ({error})") from error
    groups = [int(number) for number in _GROUP.findall(replacement)]
    if max(groups, default=0) > compiled.groups:
        raise ValueError(f"{replacement!r} names a group that {pattern!r} does not have")
    return MappingRule(compiled, replacement, letters)


def principal_of(certificate: Mapping[str, Any] | None, rules: Sequence[MappingRule]) -> Principal:
    """Return the principal of a verified certificate, as `ssl` decodes it. A client without one is
    anonymous, and so is one that no rule matches.
    """
    if not certificate:
        return ANONYMOUS
    subject = subject_text(certificate)
    if len(subject) > SUBJECT_CHARACTERS_MAX:
        return ANONYMOUS
    names = (rule.apply(subject) for rule in rules)
    name = next((given for given in names if given is not None), "")
    return Principal(name) if name else ANONYMOUS


def subject_text(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate as text."""
    parts = [
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in certificate.get("subject", ())
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    return escaped[:-1] + "\\ " if escaped.endswith(" ") and len(value) > 1 else escaped
