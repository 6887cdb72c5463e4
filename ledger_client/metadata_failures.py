"""Translation of the metadata service's errors into the client's, at the client's edge.

Leaves their meaning for a ledger being written to the writer's shell.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ledger_client.errors import (
    ApplicationTakenError,
    ChainExistsError,
    ChainNotFoundError,
    ClientClosedError,
    ClusterNotFoundError,
    LedgerError,
    LedgerExistsError,
    LedgerNotFoundError,
    LedgersCollectedError,
    MetadataConflictError,
    MetadataRefusedError,
    MetadataTooLargeError,
    MetadataUnavailableError,
    Outcome,
)
from metadata import errors as metadata_errors
from metadata.errors import (
    InvalidTransitionError,
    MetadataError,
    MetadataFormatError,
    NodeExistsError,
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreRefusedError,
    ValueTooLargeError,
    VersionConflictError,
)
from metadata.ids import LedgerId

SAME_MEANING: Final[dict[type[MetadataError], type[LedgerError]]] = {
    metadata_errors.ClusterNotFoundError: ClusterNotFoundError,
    metadata_errors.ChainNotFoundError: ChainNotFoundError,
    metadata_errors.ChainExistsError: ChainExistsError,
    metadata_errors.ApplicationTakenError: ApplicationTakenError,
    metadata_errors.LedgersCollectedError: LedgersCollectedError,
    metadata_errors.RestoreUnacceptedError: MetadataRefusedError,
}
"""Errors whose text is kept."""


def translate(error: MetadataError, ledger_id: LedgerId | None) -> LedgerError:
    """Return the client's error for an error of the metadata service."""
    same = SAME_MEANING.get(type(error))
    if same is not None:
        return same(str(error))
    match error:
        case NodeNotFoundError():
            return LedgerNotFoundError(
                "it does not exist: it was never created, or was deleted", ledger_id=ledger_id
            )
        case NodeExistsError():
            text = "it exists already: choose another id, or let the client choose"
            return LedgerExistsError(text, ledger_id=ledger_id)
        case ValueTooLargeError(size=size, limit=limit):
            text = f"its metadata would have {size} bytes, more than the {limit} allowed"
            return MetadataTooLargeError(f"{text}: store less custom metadata", ledger_id=ledger_id)
        case VersionConflictError() | InvalidTransitionError() | MetadataFormatError():
            return MetadataConflictError(str(error), ledger_id=ledger_id)
        case StoreRefusedError():
            return MetadataRefusedError(str(error), ledger_id=ledger_id)
        case StoreClosedError():
            return ClientClosedError("the client is closed: create a new one", ledger_id=ledger_id)
        case _:
            outcome: Outcome = (
                "unknown" if isinstance(error, OutcomeUnknownError) else "not_written"
            )
            return MetadataUnavailableError(str(error), ledger_id=ledger_id, outcome=outcome)


@asynccontextmanager
async def metadata_call(
    what: str,
    address: str,
    timeout_s: float,
    *,
    ledger_id: LedgerId | None = None,
    outcome: Outcome = "not_written",
) -> AsyncIterator[None]:
    """Limit the time of the block, and translate its MetadataErrors.

    `outcome` is what is known when the time is up; MetadataUnavailableError is raised then.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except MetadataError as error:
        raise translate(error, ledger_id) from error
    except LedgerError:
        raise
    except TimeoutError as error:
        text = (
            f"{what} did not end within {timeout_s:g} s: check that the metadata service at "
            f"{address} is running and reachable from this machine"
        )
        raise MetadataUnavailableError(text, ledger_id=ledger_id, outcome=outcome) from error
