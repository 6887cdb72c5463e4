"""Seeded bugs of the rights of ZooKeeper's nodes, and of the encryption of payloads.

Leaves files with keys to `transport`.

Source: docs/security.md, "Logins and rights"; docs/encryption.md, "How it works".
"""

from typing import Final

from tests.seeded_bugs.seeded_bug import (
    CLIENTS_TRUSTED,
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_simulation,
    units,
)

NODES: Final = "metadata/security/node_rights.py"
FOLLOWED: Final = "metadata/security/followed_rights.py"
CIPHER: Final = "ledger_client/encryption/ledger_cipher.py"
KEYS: Final = "ledger_client/encryption/keys.py"
SEALING: Final = "ledger_client/encryption/sealing.py"

NODE_TESTS: Final = (units("tests/unit/metadata/security/test_node_rights.py"),)
CIPHER_TESTS: Final = (units("tests/unit/ledger_client/encryption/test_ledger_cipher.py"),)
KEY_TESTS: Final = (units("tests/unit/ledger_client/encryption/test_keys.py"),)
BOUND: Final = "tests/unit/ledger_client/encryption/test_ledger_cipher.py::{}"

NODE_RULES: Final = ("security.md#logins-and-rights",)
CIPHER_RULES: Final = ("encryption.md#how-it-works",)
BYTES_AS_STORED: Final = (
    SHELL_ONLY,
    hidden_from_simulation("its bookies exchange no payloads, and its clients use their own keys"),
)

BUGS = (
    SeededBug(
        "key_of_repair_readable",
        "Clients of ZooKeeper may read the key of repair.",
        NODE_RULES,
        (Edit(NODES, "        REPAIR_KEY: Right.NONE,\n", ""),),
        NODE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "clients_change_lists",
        "Clients of ZooKeeper may change access control lists.",
        NODE_RULES,
        (Edit(NODES, "        ACLS: Right.READ,\n", "        ACLS: CHANGE,\n"),),
        NODE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "row_of_the_root_is_inherited",
        "Clients of ZooKeeper may read nodes without a row, as they may read the root.",
        NODE_RULES,
        (Edit(NODES, "    return Right.NONE\n", "    return CLIENT_RIGHTS[ROOT]\n"),),
        NODE_TESTS,
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "unreadable_record_opens_nodes",
        "While the record of rights cannot be read, new nodes are open.",
        NODE_RULES,
        (
            Edit(
                FOLLOWED, "            self._rights = error\n", "            self._rights = OPEN\n"
            ),
        ),
        (units("tests/unit/metadata/security/test_followed_rights.py"),),
        CLIENTS_TRUSTED,
    ),
    SeededBug(
        "ciphertext_fits_another_ledger",
        "A payload is decrypted in another ledger than its own.",
        CIPHER_RULES,
        (
            Edit(
                CIPHER, "key = derived(secret, key_token, _KEY", 'key = derived(secret, b"", _KEY'
            ),
            Edit(CIPHER, "_PAYLOAD_LABEL + key_token + key_id", "_PAYLOAD_LABEL + key_id"),
        ),
        (units(BOUND.format("test_an_entry_is_bound_to_its_id_ledger_and_key")),),
        BYTES_AS_STORED,
    ),
    SeededBug(
        "entries_may_change_places",
        "All entries of a ledger have one nonce, and a payload is decrypted in another entry.",
        CIPHER_RULES,
        (
            Edit(
                CIPHER,
                '[each.to_bytes(_ENTRY_ID_BYTES, "big") for each in ids]',
                "[bytes(_ENTRY_ID_BYTES) for _ in ids]",
            ),
        ),
        (units(BOUND.format("test_entries_cannot_change_places")),),
        BYTES_AS_STORED,
    ),
    SeededBug(
        "label_of_payloads_not_authenticated",
        "The tag of a payload does not depend on the key's id and the ledger's token.",
        CIPHER_RULES,
        (
            Edit(
                CIPHER,
                'self._associated = _PAYLOAD_LABEL + key_token + key_id.encode("ascii")',
                'self._associated = b""',
            ),
        ),
        (units(BOUND.format("test_the_stored_bytes_are_as_documented")),),
        BYTES_AS_STORED,
    ),
    SeededBug(
        "entry_encrypted_twice",
        "A writer encrypts an entry again after a failure, under the same nonce.",
        CIPHER_RULES,
        (Edit(SEALING, "if first_entry_id != self._next:", "if first_entry_id > self._next:"),),
        CIPHER_TESTS,
        BYTES_AS_STORED,
    ),
    SeededBug(
        "failed_encryption_keeps_its_ids",
        "A writer counts entries after it has encrypted them, and encrypts again after a failure.",
        CIPHER_RULES,
        (
            Edit(
                SEALING,
                "        self._next = EntryId(first_entry_id + len(payloads))\n"
                "        return self._cipher.encrypt(first_entry_id, payloads)\n",
                "        made = self._cipher.encrypt(first_entry_id, payloads)\n"
                "        self._next = EntryId(first_entry_id + len(payloads))\n"
                "        return made\n",
            ),
        ),
        CIPHER_TESTS,
        BYTES_AS_STORED,
    ),
    SeededBug(
        "copy_is_encrypted",
        "A copy of an encrypted ledger is encrypted with the nonces of the original.",
        CIPHER_RULES,
        (
            Edit(
                KEYS,
                "if stored.key_token != metadata.creation_token:",
                "if not stored.key_token:",
            ),
        ),
        KEY_TESTS,
        BYTES_AS_STORED,
    ),
    SeededBug(
        "plain_ledger_read_as_encrypted",
        "A ledger without encryption is read though only encrypted ones are to be read.",
        CIPHER_RULES,
        (
            Edit(
                KEYS,
                "if encryption is not None and not encryption.reads_plain:",
                "if encryption is not None and encryption.reads_plain is None:",
            ),
        ),
        KEY_TESTS,
        BYTES_AS_STORED,
    ),
)
