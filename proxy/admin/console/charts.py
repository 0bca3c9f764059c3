"""Lines as SVG, drawn on the server: sparklines, and what a chart shows where no script runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from markupsafe import Markup

WIDTH, HEIGHT = 240, 44


def sparkline(values: Sequence[float | None], label: str, *, tone: str = "", width: int = WIDTH) -> Markup:
    """Draw values as one line over an area, 0 at the bottom and the highest at the top; a gap where none is known.

    Args:
        values: The oldest first.
        label: What a screen reader says of it.
        tone: Class of the line: its colour.
        width: Of the picture, in its own units.
    """
    most = max((each for each in values if each is not None and isfinite(each)), default=0) or 1
    step = width / max(1, len(values) - 1)
    lines: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None or not isfinite(value):
            lines.append([])
            continue
        lines[-1].append(f"{place * step:.1f},{HEIGHT - 2 - value / most * (HEIGHT - 4):.1f}")
    drawn = []
    for points in (each for each in lines if each):
        first, last = points[0].partition(",")[0], points[-1].partition(",")[0]
        drawn.append(f'<path class="area" d="M{first},{HEIGHT} L{" L".join(points)} L{last},{HEIGHT} Z"/>')
        drawn.append(f'<path class="line" d="M{" L".join(points)}"/>')
    return Markup(
        '<svg class="spark {}" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(tone, width, HEIGHT, label, Markup("".join(drawn)))  # Numbers alone.
