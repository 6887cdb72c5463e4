"""Seeded bugs of tokens and of the keys that verify them.

Leaves the other mechanisms to `logins`.

Source: RFC 7519, RFC 8725; CVE-2025-27817.
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import CLIENTS_TRUSTED, Edit, SeededBug, units

TOKENS: Final = "security/sasl/tokens.py"
JWKS: Final = "security/sasl/jwks.py"
DOCUMENTS: Final = "security/sasl/jwks_documents.py"

TOKEN_FILE: Final = "tests/unit/security/sasl/test_tokens.py"
TOKEN_TESTS: Final = (units(TOKEN_FILE),)
JWKS_TESTS: Final = (units("tests/unit/security/sasl/test_jwks.py"),)
DOCUMENT_TESTS: Final = (units("tests/unit/security/sasl/test_jwks_documents.py"),)

BUGS = (
    SeededBug(
        "algorithm_chosen_by_the_token",
        "A token decides about its algorithm, also if the operator does not allow it.",
        ("RFC 8725",),
        (
            Edit(
                TOKENS,
                "if algorithm not in self._rules.algorithms:",
                "if not isinstance(algorithm, str):",
            ),
        ),
        (units(f"{TOKEN_FILE}::test_algorithms_are_the_operators_choice"),),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "key_used_for_another_algorithm",
        "A key whose `alg` names one algorithm verifies tokens of another one.",
        ("RFC 8725",),
        (
            Edit(
                JWKS,
                "        algorithms = tuple("
                'each for each in algorithms if each == listed["alg"])\n',
                "        algorithms = algorithms or ()\n",
            ),
        ),
        JWKS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "key_of_encryption_verifies",
        "A key whose use is encryption verifies tokens.",
        ("RFC 7517",),
        (Edit(JWKS, 'listed.get("use", "sig") == "sig"', 'listed.get("use", "sig") != ""'),),
        JWKS_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "signature_not_verified",
        "A token is taken whatever its signature is.",
        ("RFC 7519",),
        (Edit(TOKENS, '"verify_signature": True', '"verify_signature": False'),),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "issuer_compared_as_a_prefix",
        "A token is taken if its issuer begins with the right one.",
        ("RFC 7519",),
        (
            Edit(
                TOKENS,
                'if claims.get("iss") != rules.issuer:',
                'if not str(claims.get("iss")).startswith(rules.issuer):',
            ),
        ),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "audience_not_checked",
        "A token for another service is taken.",
        ("RFC 7519",),
        (Edit(TOKENS, "if rules.audience not in audiences:", "if audience is None:"),),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "audience_is_a_part",
        "A token is taken if the name of its audience contains the right one.",
        ("RFC 7519",),
        (
            Edit(
                TOKENS,
                "if rules.audience not in audiences:",
                "if not any(rules.audience in str(each) for each in audiences):",
            ),
        ),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "expired_token_taken",
        "A token is taken after its end.",
        ("RFC 7519",),
        (Edit(TOKENS, "if now_s >= expires_at_s + LEEWAY_S:", "if expires_at_s <= 0:"),),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "token_without_an_end",
        "A token without `exp` is taken.",
        ("RFC 7519",),
        (
            Edit(
                TOKENS,
                'expires_at_s = _time(claims, "exp")',
                'expires_at_s = _time({"exp": TIME_S_MAX, **claims}, "exp")',
            ),
        ),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "early_token_taken",
        "A token is taken before `nbf`.",
        ("RFC 7519",),
        (Edit(TOKENS, "now_s < (begins_at_s", "now_s < -(begins_at_s"),),
        TOKEN_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "redirect_followed",
        "The server of a JWKS document may send the broker to any other address.",
        ("CVE-2025-27817",),
        (Edit(DOCUMENTS, "allow_redirects=False", "allow_redirects=True"),),
        DOCUMENT_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "url_compared_as_a_prefix",
        "A JWKS document is read from each URL that begins like an allowed one.",
        ("CVE-2025-27817",),
        (Edit(DOCUMENTS, "if url not in allowed:", "if not url.startswith(tuple(allowed)):"),),
        DOCUMENT_TESTS,
        CLIENTS_TRUSTED,
    ),
)
