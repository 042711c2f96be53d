"""TeX to pictures, through ziamath (by C. Delker): for the window and for what is exported. No LaTeX installation, nothing fetched.

Free of Qt. A formula that cannot be drawn is None: then what was written is shown.
"""

from __future__ import annotations

import functools
import logging
import re
import warnings
from typing import Any

log = logging.getLogger(__name__)

# Commands by which a formula could name a file or an address; ziamath does nothing with them, and neither shall another version.
_REFUSED = re.compile(r"\\(?:href|url|includegraphics|input|include|write)\b")


def svg(tex: str, pixels: int, color: str, display: bool) -> str | None:
    """The formula as SVG whose origin lies on its base line, or None. Import and first use take a few hundred milliseconds, a formula
    some 10."""
    if _REFUSED.search(tex):
        return None
    try:
        return str(_ziamath().Latex(" ".join(tex.split()), size=pixels, color=color, inline=not display).svg())
    except Exception as error:  # its errors are of every kind: assertions, parse errors, index errors
        log.info("a formula cannot be drawn: %s", type(error).__name__)
        return None


@functools.cache
def _ziamath() -> Any:
    """The library, imported late: only chats with formulas pay for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it finds its fonts by a call that Python 3.11 calls old and 3.13 does not
        import ziafont  # type: ignore[import-untyped]
        import ziamath  # type: ignore[import-untyped]
    ziafont.config.svg2 = False  # plain paths: what QtSvg draws everywhere
    return ziamath
