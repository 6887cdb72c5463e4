"""Short campaigns, for machines that test every change: `pytest -m campaign`."""

import json

import pytest

from tests.campaign.runner import Campaign, run_campaign

SECONDS = 60.0
LIMIT_S = 600


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize(
    ("ensemble", "ack", "in_sync", "seed"),
    [(3, 2, None, 11), (3, 3, None, 12), (5, 2, None, 13), (3, 3, 2, 14)],
)
async def test_every_promise_is_kept(
    ensemble: int, ack: int, in_sync: int | None, seed: int
) -> None:
    campaign = Campaign(SECONDS, seed, ensemble=ensemble, ack=ack, in_sync=in_sync)
    summary = await run_campaign(campaign)
    assert summary["is_well"], json.dumps(summary, indent=2)
    assert summary["acked_entries"] > 0
    assert summary["faults"]
    judged = summary["judged"]
    assert judged["result"] == "skipped" or judged["ledgers"] > 0
