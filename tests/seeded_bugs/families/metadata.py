"""Seeded bugs of stored metadata: blind writes, unknown outcomes, transitions.

Leaves what the protocols decide by it to `append` and `recovery`.

Source: protocol section 1; BookKeeper #584, #1886, #1967, #2006, #2179.
"""

from tests.seeded_bugs.seeded_bug import Edit, SeededBug, model, simulation

APPEND = "ledger_client/protocol/append.py"
SHELL = "ledger_client/writing/append_shell.py"
FENCE_FORGIVEN = Edit(
    APPEND,
    "        kind = FailureKind.FENCED if status is Status.FENCED else FailureKind.GONE\n",
    "        kind = FailureKind.GONE\n",
)
RECOVERER = "ledger_client/recovery/recoverer.py"
LEDGER_STORE = "metadata/ledgers/ledger_store.py"
GO_ON_AS_BEFORE = Edit(
    APPEND,
    "        return self._begin_change() or [*self._send_missing(), *self._advance()]\n",
    "        self._health.failed.clear()\n"
    "        return [*self._send_missing(), *self._advance()]\n",
)

BUGS = (
    SeededBug(
        "metadata-overwritten-by-a-writer",
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
        (simulation("metadata"),),
        masked_by="4.7: a fence ends the writer",
    ),
    SeededBug(
        "metadata-overwritten-by-a-recovery",
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
        (simulation("metadata"),),
    ),
    SeededBug(
        "unknown-outcome-taken-for-success",
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
        (
            model("writer, a change, unknown"),
            simulation("metadata"),
        ),
    ),
    SeededBug(
        "newer-version-taken-for-our-own",
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
        (model("pair, recovery, unknown"),),
    ),
    SeededBug(
        "unknown-outcome-taken-for-failure",
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
        (model("writer, a change, unknown"),),
        masked_by="1.4: after a conflict the stored value is adopted, or the change repeated",
    ),
    SeededBug(
        "ensemble-changed-during-recovery",
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
        (model("pair, 2 entries, change, recovery"),),
    ),
)
