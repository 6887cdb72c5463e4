"""Write-ahead log: records, segments, group commit, and how a start reads them back.

- `log`: appends records group by group, and reports when they are durable.
- `records`: bytes of records; pure.
- `segments`: segment files, and files open for reading.
- `next_segment`: creation of the next file before the log needs it.
- `reserve`: file of written bytes that is removed when the disk is full.
- `doubtful_room`: room that a file system reports and does not have; a trial write.
- `replay`: bytes of segments into records; a torn tail or corruption.
- `recovery_scan`: what the log contains after the mark at a start, made durable.
- `start_file`: files as a start reads them, with zeros for what the disk cannot read.
- `tail_copy`: copy of the unproved tail into a new segment (rule 2.5).
- `listing`: adds records of a segment, from its footer or by walking it.
- `listed_runs`: those records in a compact list, walked in slices.
"""
