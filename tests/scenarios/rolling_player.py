"""Player of transcripts of `RollProtocol`.

Set-up: `early SHARE`, and the option `fills`: appends wait until the next ledger is filled.

Events:
    wanted                          an append waits for the first ledger
    grown SHARE [unusable]          the open ledger's share, and whether the next one has failed
    end | abandoned
    done | refused                  the outcome of the work that runs
"""

from collections.abc import Mapping, Sequence

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log import roll_protocol as e
from broker_layer.log.roll_protocol import RollProtocol


class RollingPlayer:
    """The ledgers of one log."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._protocol = RollProtocol(
            early_share=float(setup.get("early", "1")), fills_first="fills" in setup
        )

    def play(self, words: Sequence[str]) -> list[str]:
        return [_show(action) for action in self._protocol.handle(_event(words))]


def _event(words: Sequence[str]) -> e.RollEvent:
    match words:
        case ["wanted"]:
            return e.LedgerWanted()
        case ["grown", share, *rest]:
            return e.LedgerGrown(float(share), is_next_usable=rest != ["unusable"])
        case ["end"]:
            return e.EndRequested()
        case ["abandoned"]:
            return e.Abandoned()
        case ["done"]:
            return e.WorkDone()
        case ["refused"]:
            return e.WorkRefused(TopicError(ErrorCode.KAFKA_STORAGE_ERROR, "test"))
        case _:
            raise ValueError(f"unknown event: {' '.join(words)}")


def _show(action: e.RollAction) -> str:
    match action:
        case e.StartWork(work, after_s):
            return f"{work.value} after {after_s:g} s" if after_s else work.value
        case e.UseNext():
            return "use the next ledger"
        case e.Complete():
            return "complete"
        case e.DropNext(is_listed):
            return "abort the next ledger" if is_listed else "delete the next ledger"
        case e.RefuseAppends(error):
            return f"refuse appends {error.code.name}"
        case e.AbortAll():
            return "abort all"
