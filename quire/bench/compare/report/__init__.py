"""Report of a comparison: one self-contained HTML page."""
