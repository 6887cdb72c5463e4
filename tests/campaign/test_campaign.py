"""Short campaigns, for a machine that tests every change: `pytest -m campaign`."""

import json

import pytest

from tests.campaign.runner import Campaign, run_campaign

SECONDS = 60.0
LIMIT_S = 600


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(("ensemble", "ack", "seed"), [(3, 2, 11), (3, 3, 12), (5, 2, 13)])
async def test_every_promise_is_kept(ensemble: int, ack: int, seed: int) -> None:
    summary = await run_campaign(Campaign(SECONDS, seed, ensemble=ensemble, ack=ack))
    assert summary["is_well"], json.dumps(summary, indent=2)
    assert summary["acked_entries"] > 0
    assert summary["faults"]
