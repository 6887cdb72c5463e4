"""Principals of certificates: the subject as text, and the mapping rules."""

import pytest

from quire.identity.principal import (
    ANONYMOUS,
    Principal,
    parse_mapping_rules,
    principal_of,
    subject_text,
)

ALICE = {
    "subject": (
        (("countryName", "CH"),),
        (("organizationName", "Wool, Inc."),),
        (("organizationalUnitName", "Team"),),
        (("commonName", "Alice"),),
    )
}
SUBJECT = r"CN=Alice,OU=Team,O=Wool\, Inc.,C=CH"


def test_the_subject_has_the_most_specific_part_first() -> None:
    assert subject_text(ALICE) == SUBJECT
    assert subject_text({"subject": ((("commonName", " a#b "),),)}) == r"CN=\ a#b\ "
    assert subject_text({"subject": ((("commonName", "#a"), ("userId", "7")),)}) == r"CN=\#a+UID=7"
    assert subject_text({}) == ""


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", SUBJECT),
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Alice@Team"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U, DEFAULT", "ALICE"),
        ("RULE:^CN=(Bob),.*$/$1/, RULE:^.*OU=(.*?),.*$/$1/", "Team"),
        ("RULE:^CN=Bob$/x/,DEFAULT", SUBJECT),
        ("RULE:CN=Alice/x/,RULE:Alice/y/,RULE:.*OU=Team/z/,DEFAULT", SUBJECT),
        ("RULE:CN=(.*?),.*,O=(Quire)?.*/$1$2/", "Alice"),
    ],
)
def test_the_first_rule_that_matches_decides(rules: str, name: str) -> None:
    assert principal_of(ALICE, parse_mapping_rules(rules)) == Principal(name)


def test_without_a_certificate_or_a_rule_a_client_is_anonymous() -> None:
    default = parse_mapping_rules("")
    assert principal_of(None, default) is ANONYMOUS
    assert principal_of({}, default) is ANONYMOUS
    assert principal_of(ALICE, parse_mapping_rules("RULE:CN=Bob/x/")) is ANONYMOUS
    assert principal_of(ALICE, parse_mapping_rules("RULE:CN=Alice/x/")) is ANONYMOUS, "a part"
    assert principal_of(ALICE, parse_mapping_rules("RULE:.*//")) is ANONYMOUS
    long = {"subject": ((("commonName", "a" * 1_025),),)}
    assert principal_of(long, default) is ANONYMOUS


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:CN=(.*)",
        "RULE:CN=(/x/",
        "RULE:CN=(.*)/$2/",
        "DEFAULT DEFAULT",
        "RULE:a/b/X",
        ",".join(["DEFAULT"] * 101),
    ],
)
def test_rules_that_cannot_be_used_are_refused(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern|group"):
        parse_mapping_rules(rules)
