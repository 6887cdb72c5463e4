"""Repair: the states of bookies, what is to be repaired, and by which process.

- `repair_key`: key that proves the role of repair to bookies.
- `lifecycle`: state of a bookie, its transitions and its bytes.
- `lifecycle_store`: states of all bookies, changed and followed.
- `settings`: what operators set for repair, and its bytes.
- `settings_store`: the settings, changed and followed.
- `jobs`: a published job, its name and its bytes.
- `job_store`: published jobs.
- `claims`: which worker repairs a ledger, and how far it is.
- `workers`: workers that are up.
- `auditor_election`: elects one process as the auditor.
- `status`: summary of the auditor, and its bytes.
- `status_store`: the summary, stored.
- `scrub`: a bookie's scrub and its damaged entries, and its bytes.
- `scrub_store`: scrub records, changed and followed.
"""
