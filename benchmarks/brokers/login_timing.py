"""Benchmark of refused logins: whether their time shows that a user exists.

One client after the other logs in over TLS by SCRAM-SHA-512 with a wrong password: as a user that
exists, as one unknown user, and as an unknown user of a new name each time, in a random order. The
time of both answers of the broker is measured. `chance_to_order` is the probability that an answer
to an unknown user is later than one to the known user: 0.5 means that an answer shows nothing.
`p_value` is the share of random divisions of the same times into two groups that differ at least as
much (permutation test). Leaves the messages to `quire.identity.sasl`.

Target: each chance within 0.45 to 0.55, for which it needs `--repeat 1` and hundreds of logins.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from random import Random
from ssl import SSLContext
from statistics import median
from typing import Final

from benchmarks.runner import Bench, run
from broker_layer.kafka.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker_layer.peer import ask_login
from quire.identity.client_file import read_client_file
from quire.identity.sasl.credentials import ScramMechanism
from quire.identity.sasl.mechanism import run_at_once
from quire.identity.sasl.scram import ScramClient
from quire.local.secure_directory import CLIENT_NAME
from quire.local_cluster import LocalCluster

LOGINS: Final = 300
"""Number of logins of each kind."""
WARMING: Final = 10
DIVISIONS: Final = 2_000
KNOWN: Final = "known user"
UNKNOWN: Final = "one unknown user"
NEW: Final = "new unknown users"
ANSWERS: Final = ("first", "final")
MECHANISM: Final = ScramMechanism.SHA_512
CHANCE_LEAST, CHANCE_MOST = 0.45, 0.55


async def _refused(address: tuple[str, int], ssl: SSLContext, user: str, nonce: str) -> list[float]:
    """Log in with a wrong password; return the time of each answer, in us."""
    reader, writer = await asyncio.open_connection(*address, ssl=ssl)
    try:
        handshake = SaslHandshakeRequest(mechanism=MECHANISM.value)
        await ask_login(reader, writer, handshake, SaslHandshakeResponse)
        exchange = ScramClient(MECHANISM, user, "not the password", nonce, run_at_once)
        first_us, first = await _timed(reader, writer, exchange.begin())
        proof = await exchange.respond(bytes(first.auth_bytes))
        assert proof is not None, "the proof follows the first answer"
        final_us, final = await _timed(reader, writer, proof)
        assert final.error_code, "a wrong password is refused"
        return [first_us, final_us]
    finally:
        writer.close()


async def _timed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, message: bytes
) -> tuple[float, SaslAuthenticateResponse]:
    """Send a message of SCRAM; return the time of the answer, in us, and the answer."""
    request = SaslAuthenticateRequest(auth_bytes=message)
    began_s = time.perf_counter()
    answer = await ask_login(reader, writer, request, SaslAuthenticateResponse)
    return (time.perf_counter() - began_s) * 1e6, answer


def chance_to_order(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the probability that one of `ones` is larger than one of `others`; equal ones count
    half.
    """
    ordered = sorted(others)
    wins = sum(bisect_left(ordered, one) + bisect_right(ordered, one) for one in ones) / 2
    return wins / (len(ones) * len(others))


def p_value(ones: Sequence[float], others: Sequence[float], rng: Random, divisions: int) -> float:
    """Return the share of random divisions whose chance is at least as far from 0.5."""
    far = abs(chance_to_order(ones, others) - 0.5)
    both, count = [*ones, *others], 0
    for _ in range(divisions):
        rng.shuffle(both)
        count += abs(chance_to_order(both[: len(ones)], both[len(ones) :]) - 0.5) >= far
    return count / divisions


async def _measure(bench: Bench) -> None:
    rng, report, logins = Random(1), bench.report, bench.size(LOGINS, 5)
    with bench.subdirectory() as directory:
        async with LocalCluster(3, directory, broker=1, secure=True) as cluster:
            host, _, port = cluster.brokers[0].listeners["SASL_SSL"].rpartition(":")
            context = read_client_file(cluster.certificates.client_file(CLIENT_NAME)).context
            assert context is not None, "the cluster is secure"
            users = {KNOWN: CLIENT_NAME, UNKNOWN: "clienu"}
            times: dict[str, list[list[float]]] = {kind: [[], []] for kind in (*users, NEW)}
            order = [kind for kind in times for _ in range(logins)]
            rng.shuffle(order)
            warming = [KNOWN, UNKNOWN] * (0 if bench.is_smoke else WARMING)
            for number, kind in enumerate([*warming, *order]):
                user = users.get(kind, f"cli{number:03}")
                took = await _refused((host, int(port)), context, user, f"nonce{number}")
                if number >= len(warming):
                    for series, us in zip(times[kind], took, strict=True):
                        series.append(us)
    for kind in (UNKNOWN, NEW):
        for place, answer in enumerate(ANSWERS):
            known, unknown = times[KNOWN][place], times[kind][place]
            case = f"{answer} answer: {kind}"
            chance = chance_to_order(unknown, known)
            report.sample(
                case,
                {
                    "known_median_us": median(known),
                    "unknown_median_us": median(unknown),
                    "chance_to_order": chance,
                    "p_value": p_value(unknown, known, rng, bench.size(DIVISIONS, 20)),
                    "logins": logins,
                },
            )
            bounds = (None, None) if bench.is_smoke else (CHANCE_LEAST, CHANCE_MOST)
            report.figure(case, "chance_to_order", "ratio", at_least=bounds[0], at_most=bounds[1])


if __name__ == "__main__":
    run("login_timing", _measure, repeat=1)
