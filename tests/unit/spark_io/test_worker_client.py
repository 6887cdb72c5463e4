"""Clients of Spark's workers."""

import gc

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `spark`")

from spark_io import worker_client
from spark_io.common_options import OptionReader, client_options


@pytest.mark.parametrize("is_worker", [False, True])
def test_imports_are_kept_out_of_garbage_collections_of_workers_only(
    monkeypatch: pytest.MonkeyPatch, *, is_worker: bool
) -> None:
    monkeypatch.setattr(worker_client, "is_worker", lambda: is_worker)
    monkeypatch.setattr(worker_client, "_clients", {})
    before = gc.get_freeze_count()
    address = {"metadata": "zk://127.0.0.1:1/none"}
    client = worker_client.client_of(client_options(OptionReader(address, ("metadata",))))
    try:
        assert (gc.get_freeze_count() > before) is is_worker
    finally:
        gc.unfreeze()
        client.close()
