"""Files and the key-value store of the index: the only modules of a bookie that touch the disk.

- `disk`: interface of a disk; the only door to files.
- `disk_real`: disk over a real directory, with a thread for each kind of work.
- `disk_calls`: system calls, with a substitute where a system lacks one.
- `disk_threads`: blocking calls on separate threads, with results on the event loop.
- `disk_identity`: identity of a file and of a held lock.
- `capacity`: limit of the bytes below one directory.
- `small_files`: small files, read and replaced durably as one piece.
- `running_operations`: writes, syncs and renames that have not returned.
- `index_store`: interface of the index's key-value store.
- `index_lmdb`: that store over LMDB, with a thread for updates and one for look-ups.
- `lmdb_file`: check of its file before it is mapped.
"""
