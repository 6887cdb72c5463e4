"""A short campaign with bookies that are lost for good: `pytest -m campaign`."""

import json
from functools import partial

import pytest

from tests.campaign.repair.world import RepairWorld
from tests.campaign.runner import Campaign, run_campaign

SECONDS = 60.0
LIMIT_S = 900


@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("topics_seed", [None, 31])
async def test_every_entry_has_all_its_copies_again(topics_seed: int | None) -> None:
    campaign = Campaign(SECONDS, seed=31, ack=3, bookies=6, down_max=1, megabytes_per_s=1.0)
    world = partial(RepairWorld, topics_seed=topics_seed)
    summary = await run_campaign(campaign, world)
    assert summary["is_well"], json.dumps(summary, indent=2)
    assert summary["acked_entries"] > 0
    assert summary["repair"]["losses"]
    assert summary["repair"]["replicas"]["copies"] > 0
    if topics_seed is not None:
        assert summary["topics"]["acked_records"] > 0
