"""Times of lines, which follow from their numbers: one each 10 ms, slightly out of order.

Invariants: the time of a line is less than `LATE_MS` before that of any earlier line, so a
watermark with this delay drops nothing, and batches end in the middle of windows.
"""

LINE_MS = 10
DISORDER = 63
"""A number is combined with this by exclusive or: lines trade places with one up to 63 away."""
LATE_MS = 1_000
WINDOW_MS = 10_000
LINES_PER_WINDOW = WINDOW_MS // LINE_MS


def time_ms(number: int) -> int:
    """Return the time of a line, in milliseconds since 1970."""
    return (number ^ DISORDER) * LINE_MS
