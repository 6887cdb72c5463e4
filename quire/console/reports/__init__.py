"""Reports of benches, opened in the console.

- `report_files`: the directory of reports: what is in it, and what is refused.
"""
