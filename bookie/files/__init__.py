"""Files and the key-value store of the index: the only modules of a bookie that touch the disk.

- `disk`: interfaces of a disk, the only door to files, and of the index's store; small files.
- `disk_real`: disk over a real directory, with a thread for each kind of work.
- `disk_calls`: system calls, with a substitute where a system lacks one; threads; identities of
  files.
- `index_lmdb`: the index's store over LMDB, with a thread for updates and one for look-ups.
"""
