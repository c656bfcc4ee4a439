"""C's conversions of `printf`, the same on every host: digits, then sign and padding.

The C libraries of hosts differ: Windows has other functions, and each its own ``%p``. The text here is glibc's, with
which NVIDIA's driver prints on Linux.
"""

from __future__ import annotations

import math
from typing import Final

_UNSIGNED: Final = "ouxX"
_PREFIXES: Final = {"x": "0x", "X": "0X", "a": "0x", "A": "0X", "p": "0x"}


def formatted(conversion: str, flags: str, width: int, precision: int | None, value: int | float | bytes) -> bytes:
    """Return the text of one value.

    Parameters
    ----------
    conversion : str
        One of ``diouxXeEfFgGaAcsp``.
    flags : str
        Of ``-+ #0``.
    width, precision : int, int or None
        As C's arguments: a negative width pads on the right, and a negative precision is none.
    value : int, float or bytes
        An integer has the size and sign of its C type.
    """
    if precision is not None and precision < 0:
        precision = None
    if width < 0:
        flags, width = f"{flags}-", -width
    if conversion in "cs":
        assert not isinstance(value, float)
        text = bytes([value & 0xFF]) if isinstance(value, int) else value[:precision]
        return text.ljust(width) if "-" in flags else text.rjust(width)
    assert not isinstance(value, bytes)
    is_negative = math.copysign(1, value) < 0 if isinstance(value, float) else value < 0
    sign = "" if conversion in _UNSIGNED else "-" if is_negative else "+" if "+" in flags else " " * (" " in flags)
    if isinstance(value, int):
        sign, digits = _integer(conversion, "#" in flags, precision, value, sign)
        is_filled = "0" in flags and precision is None and digits != "(nil)"
    else:
        prefix, digits = _real(conversion, "#" in flags, precision, abs(value))
        sign += prefix
        is_filled = "0" in flags and math.isfinite(value)
    if "-" in flags:
        return f"{sign}{digits}".ljust(width).encode()
    if is_filled:
        digits = digits.rjust(width - len(sign), "0")
    return f"{sign}{digits}".rjust(width).encode()


def _integer(conversion: str, is_other: bool, precision: int | None, value: int, sign: str) -> tuple[str, str]:
    """Return the sign with the base's prefix, and the digits. `is_other`: the flag ``#``."""
    if conversion == "p":
        if value == 0:
            return "", "(nil)"
        is_other = True
    base = {"o": "o", "X": "X", "x": "x", "p": "x"}.get(conversion, "d")
    digits = "" if value == 0 and precision == 0 else format(abs(value), base)
    digits = digits.rjust(precision or 0, "0")
    if is_other and conversion == "o" and not digits.startswith("0"):
        digits = f"0{digits}"
    return sign + (_PREFIXES.get(conversion, "") if is_other and value else ""), digits


def _real(conversion: str, is_other: bool, precision: int | None, value: float) -> tuple[str, str]:
    """Return the base's prefix, and the digits. `is_other`: the flag ``#``."""
    if not math.isfinite(value):
        text = "nan" if math.isnan(value) else "inf"
        return "", text.upper() if conversion.isupper() else text
    if conversion not in "aA":
        return "", format(value, f"{'#' * is_other}.{6 if precision is None else precision}{conversion}")
    mantissa, exponent = value.hex()[2:].split("p")
    digits = mantissa.replace(".", "").ljust(14, "0")
    if precision is None:
        digits = digits[0] + digits[1:].rstrip("0")
    elif precision < 13:
        whole, dropped = divmod(int(digits, 16), 1 << (shift := 4 * (13 - precision)))
        half = 1 << (shift - 1)
        digits = format(whole + (dropped > half or (dropped == half and whole & 1)), "x").rjust(precision + 1, "0")
    else:
        digits = digits.ljust(precision + 1, "0")
    text = f"{digits[0]}{'.' if digits[1:] or is_other else ''}{digits[1:]}p{int(exponent):+d}"
    return _PREFIXES[conversion], text.upper() if conversion == "A" else text
