"""Sums of numbers: code whose tests notice some changes and not others."""

from functools import lru_cache


class Sums:
    """Adds numbers up to a limit."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int, times: int = 1) -> bool:
        """Add a number; return whether it was taken."""
        if number <= 0 or self.total + number > 100:
            return False
        for _ in range(times):
            self.total += number
        return True

    def untested(self) -> int:
        """Return what no test looks at."""
        return self.total + 1


class LoudSums(Sums):
    """Counts calls, too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def add_loudly(self, number: int, times: int = 1) -> bool:
        """Add a number."""
        self.calls += 1
        return super().add(number, times)


@lru_cache
def halvings(number: int) -> int:
    """Return how often a number can be halved."""
    count = 0
    while number > 1:
        number //= 2
        count += 1
    return count
