"""CRC32C by its definition: slow, and independent of the fast implementation."""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78


def _row(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ _POLYNOMIAL * (byte & 1)
    return byte


_TABLE: Final = tuple(_row(byte) for byte in range(256))


def reference_crc32c(data: bytes, before: int = 0) -> int:
    """Return the CRC32C of `data` after bytes whose CRC32C is `before`."""
    crc = before ^ 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF
