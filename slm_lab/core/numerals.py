"""Numbers as text for people."""


def significant(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits; large numbers keep all integer digits.

    Examples: 1,234, 429, 12.3, 0.738, 0.000123; a dash for None.
    """
    if value is None:
        return "–"
    if abs(value) >= 10 ** (digits - 1) - 0.5:
        return f"{value:,.0f}"
    return f"{value + 0.0:#.{digits}g}" if value else "0"
