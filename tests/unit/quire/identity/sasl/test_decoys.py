"""What stands for credentials of unknown users."""

import re
from collections import Counter
from collections.abc import Sequence

import pytest

from quire.identity.sasl.credentials import (
    FORMS_MAX,
    KAFKA,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    QUIRE,
    TOOLS,
    CredentialForm,
    CredentialForms,
    Decoys,
    ScramCredential,
    ScramMechanism,
    form_of,
)

SECRET = b"0123456789abcdef"
SHA_256, SHA_512 = ScramMechanism
NAMES = [f"user-{number}" for number in range(400)]


def credential(form: CredentialForm) -> ScramCredential:
    """Return a credential of a form."""
    return Decoys(SECRET, CredentialForms([form])).credential("a", SHA_256)


def forms(counts: dict[CredentialForm, int]) -> CredentialForms:
    found = CredentialForms()
    for form, count in counts.items():
        for _ in range(count):
            found.change([], [credential(form)])
    return found


def ticket_forms(known: CredentialForms) -> set[CredentialForm]:
    """Return the forms of the tickets, where both mechanisms have the same."""
    return {first for _, (first, second) in known.tickets if first == second}


def shown(known: CredentialForms, names: Sequence[str] = NAMES) -> list[CredentialForm]:
    decoys = Decoys(SECRET, known)
    return [form_of(decoys.credential(name, SHA_256)) for name in names]


def test_a_user_has_the_same_decoy_each_time() -> None:
    assert Decoys(SECRET).credential("a", SHA_256) == Decoys(SECRET).credential("a", SHA_256)


def test_secret_user_and_mechanism_decide() -> None:
    salts = [
        Decoys(SECRET).credential("a", SHA_256).salt,
        Decoys(SECRET).credential("b", SHA_256).salt,
        Decoys(SECRET).credential("a", SHA_512).salt,
        Decoys(bytes(16)).credential("a", SHA_256).salt,
    ]
    assert len(set(salts)) == 4


@pytest.mark.parametrize(
    ("form", "sizes"),
    [
        (QUIRE, {16}),
        (KAFKA_PYTHON, {24}),
        (LIBRDKAFKA, {64}),
        (KAFKA, {24, 25, 26}),
        (CredentialForm(200, is_text=False, iterations=8_192), {200}),
    ],
)
def test_its_salt_looks_like_those_of_a_tool(form: CredentialForm, sizes: set[int]) -> None:
    decoys = Decoys(SECRET, CredentialForms([form]))
    made = [decoys.credential(name, mechanism) for name in NAMES for mechanism in ScramMechanism]
    assert len({scram_credential.salt for scram_credential in made}) == len(made)
    assert {len(scram_credential.salt) for scram_credential in made} <= sizes
    assert {scram_credential.iterations for scram_credential in made} == {form.iterations}
    is_text = all(re.fullmatch(rb"[0-9a-z]+", scram_credential.salt) for scram_credential in made)
    assert is_text == form.is_text


def test_where_all_users_have_one_form_all_decoys_have_it() -> None:
    assert set(shown(forms({QUIRE: 3}))) == {QUIRE}
    assert set(shown(forms({KAFKA: 1_000}))) == {KAFKA}


def test_without_users_decoys_have_the_forms_of_all_tools() -> None:
    assert set(shown(CredentialForms())) == {*TOOLS}


def test_a_form_of_more_users_is_chosen_more_often() -> None:
    found = Counter(shown(forms({QUIRE: 1_000, KAFKA: 1})))
    assert found[QUIRE] > 5 * found[KAFKA] > 0


def test_both_mechanisms_have_one_form() -> None:
    decoys = Decoys(SECRET)
    for name in NAMES:
        first, second = (
            form_of(decoys.credential(name, mechanism)) for mechanism in ScramMechanism
        )
        assert first == second


def test_decoys_differ_between_mechanisms_where_users_do() -> None:
    known = CredentialForms()
    strong = CredentialForm(26, is_text=True, iterations=8_192)
    both = Decoys(SECRET, CredentialForms([strong])).credential("a", SHA_256)
    known.change([], [both, Decoys(SECRET, CredentialForms([KAFKA])).credential("a", SHA_512)])
    decoys = Decoys(SECRET, known)
    assert {form_of(decoys.credential(name, SHA_256)) for name in NAMES} == {strong}
    assert {form_of(decoys.credential(name, SHA_512)) for name in NAMES} == {KAFKA}


def test_the_decoy_of_a_user_with_one_mechanism_looks_like_its_credential() -> None:
    known = forms({QUIRE: 1_000, LIBRDKAFKA: 1})
    own = credential(LIBRDKAFKA)
    found = {form_of(Decoys(SECRET, known).credential(name, SHA_512, own)) for name in NAMES}
    assert found == {LIBRDKAFKA}


def test_a_user_with_one_mechanism_counts_as_one_with_both() -> None:
    assert set(shown(forms({KAFKA: 3}))) == {KAFKA}
    decoys = Decoys(SECRET, forms({KAFKA: 3}))
    assert {form_of(decoys.credential(name, SHA_512)) for name in NAMES} == {KAFKA}


def test_few_decoys_change_with_the_users() -> None:
    before = shown(forms({QUIRE: 100, KAFKA: 100}))
    assert shown(forms({QUIRE: 120, KAFKA: 70})) == before, "no number doubled"
    after = shown(forms({QUIRE: 100, KAFKA: 100, LIBRDKAFKA: 1}))
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(changed) == {LIBRDKAFKA}, "a decoy changes only to the new form"


def test_forms_are_counted_down_and_limited() -> None:
    known = forms({QUIRE: 2, KAFKA: 1})
    known.change([credential(KAFKA)], [])
    assert ticket_forms(known) == {QUIRE}
    for _ in range(2):
        known.change([credential(QUIRE)], [])
    assert ticket_forms(known) == {*TOOLS}
    many = forms(
        {CredentialForm(size, is_text=False, iterations=4_096): 1 for size in range(30, 90)}
    )
    for _ in range(2):
        many.change([], [credential(QUIRE)])
    found = ticket_forms(many)
    assert len(found) == FORMS_MAX
    assert QUIRE in found
    assert len({ticket for ticket, _ in many.tickets}) == len(many.tickets)


def test_the_secret_is_not_shown() -> None:
    assert "0123" not in repr(Decoys(SECRET))


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 B"):
        Decoys(b"short")


@pytest.mark.parametrize(("size", "iterations"), [(0, 4_096), (16, 1)])
def test_other_forms_are_refused(size: int, iterations: int) -> None:
    with pytest.raises(ValueError, match=r"at least|iterations"):
        CredentialForm(size, is_text=False, iterations=iterations)
