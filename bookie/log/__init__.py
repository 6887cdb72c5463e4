"""Write-ahead log: records, segments, group commit, and how a start reads them back.

- `log`: appends records group by group, and reports when they are durable.
- `records`: bytes of records; pure.
- `segments`: segment files, and files open for reading.
- `reserve`: file of written bytes that is removed when the disk is full; a trial write.
- `replay`: bytes of segments into records; a torn tail or corruption; list of adds records.
- `recovery_scan`: what the log contains after the mark at a start, made durable.
"""
