"""Numbers for people."""


def significant(value: float | None, digits: int = 3) -> str:
    """A number of any scale with so many significant digits, of large ones all that are whole.

    As 1,234, 429, 12.3, 0.738, 0.000123; a dash where there is none.
    """
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1) - 0.5:
        return f"{value:,.0f}"
    return f"{value + 0.0:#.{digits}g}" if value else "0"
