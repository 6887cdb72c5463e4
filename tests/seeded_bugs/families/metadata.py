"""Seeded bugs of stored metadata: blind writes, unknown outcomes, transitions.

Leaves what the protocols decide by it to `append` and `recovery`.

Source: protocol section 1; BookKeeper #584, #1886, #1967, #2006, #2179.
"""

from tests.seeded_bugs.seeded_bug import (
    SHELL_ONLY,
    Edit,
    SeededBug,
    hidden_from_model,
    hidden_from_simulation,
    model,
    simulation,
    units,
)

APPEND = "ledger_client/protocol/append.py"
LEDGER_STORE = "metadata/ledgers/ledger_store.py"
SHELL = "ledger_client/writing/append_shell.py"
RECOVERER = "ledger_client/recovery/recoverer.py"
STORE_TESTS = "tests/unit/metadata/ledgers/test_ledger_store.py"
ZOOKEEPER = "metadata/store/zookeeper/store.py"
FRESH_READS = "tests/unit/metadata/store/test_zookeeper_reads.py"
MEMORY_ONLY = hidden_from_simulation("its metadata service is in memory, without ZooKeeper")
CLIENT_TESTS = "tests/unit/ledger_client/test_client.py"
RECOVERER_TESTS = "tests/unit/ledger_client/recovery/test_recoverer.py"

GO_ON_AS_BEFORE = Edit(
    APPEND,
    "        return self._begin_change() or [*self._send_missing(), *self._advance()]\n",
    "        self._health.failed.clear()\n"
    "        return [*self._send_missing(), *self._advance()]\n",
)
FENCE_FORGIVEN = Edit(
    APPEND,
    "        kind = FailureKind.FENCED if status is Status.FENCED else FailureKind.GONE\n",
    "        kind = FailureKind.GONE\n",
)

BUGS = (
    SeededBug(
        "blind_write_by_the_writer",
        "A writer whose compare-and-set fails stores its change over the current value, and treats"
        " a fence as a bookie's failure.",
        ("1.2", "4.7"),
        (
            Edit(
                SHELL,
                "        except VersionConflictError:\n            return await"
                " self._read_back()\n",
                "        except VersionConflictError:\n"
                "            ledgers = self._services.ledgers\n"
                "            _, found = await ledgers.get(metadata.ledger_id, fresh=True)\n"
                "            return await self._update(metadata, found)\n",
            ),
            FENCE_FORGIVEN,
        ),
        (
            units(
                f"{CLIENT_TESTS}::test_recovery_fences_and_keeps_what_was_confirmed",
                f"{CLIENT_TESTS}::test_a_fenced_writer_raises_also_after_it_is_closed",
            ),
            simulation("metadata"),
        ),
        (SHELL_ONLY,),
        masked_by="4.7: a fence ends the writer",
    ),
    SeededBug(
        "blind_write_by_a_recoverer",
        "A recovery whose compare-and-set fails stores its change over the current value.",
        ("1.2", "7.5"),
        (
            Edit(
                RECOVERER,
                "        except VersionConflictError:\n            await self._read_metadata()\n",
                "        except VersionConflictError:\n"
                "            _, found = await self._metadata_now()\n"
                "            await self._store(replace(action, version=found))\n",
            ),
            Edit(
                RECOVERER,
                "from collections.abc import Awaitable, Callable\n",
                "from collections.abc import Awaitable, Callable\n"
                "from dataclasses import replace\n",
            ),
        ),
        (units(f"{RECOVERER_TESTS}::test_five_recoverers_at_once_agree"), simulation("metadata")),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "unknown_outcome_is_success",
        "A compare-and-set without an answer counts as applied.",
        ("1.3",),
        (
            Edit(
                LEDGER_STORE,
                "            except (OutcomeUnknownError, StoreUnavailableError):\n"
                "                is_unknown = True\n"
                "            except VersionConflictError:\n",
                "            except (OutcomeUnknownError, StoreUnavailableError):\n"
                "                return Version(expected + 1)\n"
                "            except VersionConflictError:\n",
            ),
        ),
        (units(STORE_TESTS), model("writer, a change, unknown"), simulation("metadata")),
    ),
    SeededBug(
        "any_newer_version_is_ours",
        "After a lost answer, any newer stored version counts as the writer's own change.",
        ("1.3",),
        (
            Edit(
                LEDGER_STORE,
                "        if stored.update_token == metadata.update_token:\n"
                "            return version\n        raise",
                "        if stored.ledger_id == metadata.ledger_id:\n"
                "            return version\n        raise",
            ),
        ),
        (units(STORE_TESTS), model("pair, recovery, unknown"), simulation("metadata")),
    ),
    SeededBug(
        "unknown_outcome_is_failure",
        "A compare-and-set without an answer counts as refused, and the writer continues with its"
        " previous ensemble.",
        ("1.3", "1.4"),
        (
            Edit(
                LEDGER_STORE,
                "            except (OutcomeUnknownError, StoreUnavailableError):\n"
                "                is_unknown = True\n"
                "            except VersionConflictError:\n",
                "            except (OutcomeUnknownError, StoreUnavailableError):\n"
                "                raise VersionConflictError(path, expected) from None\n"
                "            except VersionConflictError:\n",
            ),
            GO_ON_AS_BEFORE,
        ),
        (units(STORE_TESTS), model("writer, a change, unknown"), simulation("metadata")),
        masked_by="1.4: after a conflict the stored value is adopted, or the change repeated",
    ),
    SeededBug(
        "change_abandoned_while_it_may_apply",
        "A change that is slow in the metadata service is abandoned, and the writer continues with"
        " its previous ensemble, although the write may still apply.",
        ("1.3",),
        (
            Edit(
                SHELL,
                "            version = await self._services.ledgers.compare_and_set(metadata,"
                " expected)\n",
                "            change = self._services.ledgers.compare_and_set(metadata, expected)\n"
                "            if metadata.last_entry_id is None:\n"
                "                change = asyncio.wait_for(change, 0.5)\n"
                "            version = await change\n"
                "        except TimeoutError:\n"
                "            return e.MetadataConflicted(self.protocol.metadata, expected)\n",
            ),
            GO_ON_AS_BEFORE,
        ),
        (simulation("metadata"),),
        (SHELL_ONLY,),
    ),
    SeededBug(
        "ensemble_change_in_recovery",
        "A writer whose compare-and-set meets a recovery still replaces bookies, and continues"
        " with bookies that are not fenced.",
        ("1.4", "1.5"),
        (
            Edit(
                APPEND,
                "        if stored.state is not LedgerState.OPEN:\n",
                "        if stored.state is LedgerState.CLOSED:\n",
            ),
            Edit(
                "metadata/ledgers/ledger_metadata.py",
                "        self._require(LedgerState.OPEN)\n"
                "        fragments = self._fragments_from(",
                "        fragments = self._fragments_from(",
            ),
        ),
        (
            units(
                "tests/unit/ledger_client/protocol/test_append_protocol.py::"
                "test_every_history_keeps_the_rules"
            ),
            model("pair, 2 entries, change, recovery"),
            simulation("metadata"),
        ),
    ),
    SeededBug(
        "a_create_of_another_is_ours",
        "A ledger that another client created with the same id counts as the client's own lost"
        " create: it gets two writers.",
        ("1.3",),
        (
            Edit(
                LEDGER_STORE,
                "        return stored.creation_token == metadata.creation_token\n",
                "        return stored.ledger_id == metadata.ledger_id\n",
            ),
        ),
        (units(STORE_TESTS),),
        (
            hidden_from_model("a world starts with its ledger: none is created"),
            hidden_from_simulation("ids are allocated: no two clients create the same one"),
        ),
    ),
    SeededBug(
        "an_allocated_id_is_chosen",
        "A client chooses the id of a deleted ledger that the cluster had allocated: the old"
        " writer's compare-and-set meets the new ledger at the same version.",
        ("10.2",),
        (
            Edit(
                LEDGER_STORE,
                "            if not FIRST_ID <= ledger_id < free:\n",
                "            if FIRST_ID <= free:\n",
            ),
        ),
        (units(STORE_TESTS),),
        (
            hidden_from_model("a world starts with its ledger: none is created"),
            hidden_from_simulation("its clients let ids be allocated"),
        ),
    ),
    SeededBug(
        "fresh_read_without_a_sync",
        "The store over ZooKeeper does not sync before a fresh read: a server that lags answers"
        " with an older state.",
        ("1.6",),
        (
            Edit(
                ZOOKEEPER,
                '        return [self._session.submit("sync", path)] if fresh else []\n',
                '        return [self._session.submit("sync", path)]'
                " if fresh and not path else []\n",
            ),
        ),
        (units(FRESH_READS),),
        (SHELL_ONLY, MEMORY_ONLY),
    ),
    SeededBug(
        "agreed_read_that_only_syncs",
        "The store over ZooKeeper syncs before an agreed read and commits nothing: a replaced"
        " leader answers with an older state.",
        ("1.6",),
        (
            Edit(
                ZOOKEEPER,
                "            return [self._session.submit_transaction("
                "[transaction_call(ROOT_EXISTS)])]\n",
                '            return [self._session.submit("sync", path)]\n',
            ),
        ),
        (units(FRESH_READS),),
        (SHELL_ONLY, MEMORY_ONLY),
    ),
    SeededBug(
        "unknown_error_code_ends_the_session",
        "An error code that kazoo does not know ends kazoo's thread: no change of metadata is"
        " decided any more.",
        ("1.3",),
        (
            Edit(
                "metadata/store/zookeeper/session.py",
                "EXCEPTIONS.default_factory = lambda: ZookeeperError\n",
                "",
            ),
            Edit(
                "metadata/store/zookeeper/session.py",
                "        connection._read_socket = read  # noqa: SLF001\n",
                "",
            ),
        ),
        (units("tests/unit/metadata/store/test_zookeeper_errors.py"),),
        (SHELL_ONLY, MEMORY_ONLY),
    ),
)
