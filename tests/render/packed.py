"""The bytes that the characters of packed data hold, by hand."""

_DIGITS = {
    code: digit
    for digit, code in enumerate(code for code in range(33, 127) if chr(code) not in '"<\\')
}


def bytes_of(packed: bytes | str) -> bytes:
    """Two characters hold 13 bits, one at the end holds 6."""
    text = packed if isinstance(packed, bytes) else packed.encode("ascii")
    digits = [_DIGITS[code] for code in text]
    pairs = zip(digits[::2], digits[1::2], strict=False)
    bits = "".join(f"{low + 91 * high:013b}" for low, high in pairs)
    bits += f"{digits[-1]:06b}" if len(digits) % 2 else ""
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))
