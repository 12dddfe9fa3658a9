"""One record of a TensorBoard event file.

The `tensorboard` package frames records too, behind an import of its file systems (0.04 s).
"""

import struct

_POLYNOMIAL = 0x82F63B78  # of CRC-32C (Castagnoli; RFC 3720, appendix B.4), lowest bit first
_MASK = 0xA282EAD8


def framed(data: bytes) -> bytes:
    """`data` with its length before it and a checksum behind each: a record of a TFRecord file."""
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted so that a checksum over checksums stays one."""
    crc = crc32c(data)
    rotated = crc >> 15 | crc << 17 & 0xFFFFFFFF
    return struct.pack("<I", rotated + _MASK & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """The cyclic redundancy check with the polynomial of Castagnoli."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _remainder(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_remainder(byte) for byte in range(256))
