"""A list or a table at the top of an answer, cut into the items or rows that it is made of, so that those that are done can be let go.

Qt-free; owns no text. An item is done when the next one has begun, a row with its line. Only a list's spacing reaches back: one empty
line between two items sets all of them apart, the earlier ones, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from markdown_it.token import Token

LISTS = ("bullet_list_open", "ordered_list_open")


@dataclass(frozen=True, slots=True)
class Container:
    """`opening`, then `units`, then `closing` are the block's tokens. A unit's first token has its lines (`map`)."""

    opening: list[Token]
    units: list[list[Token]]
    closing: list[Token]

    @property
    def is_list(self) -> bool:
        return self.opening[0].type in LISTS

    @property
    def kind(self) -> tuple[str, str]:
        """What another piece of the same list or table has in common with it."""
        return self.opening[0].type, self.opening[0].markup

    @property
    def loose(self) -> bool | None:
        """Whether a list's items stand apart; None where nothing in it shows which."""
        marks = (token.hidden for unit in self.units for token in unit if token.type == "paragraph_open" and token.level == 2)
        hidden = next(marks, None)
        return None if hidden is None else not hidden

    def spaced(self, loose: bool) -> Container:
        """The same, a list's items set apart or not."""
        return replace(self, units=[[_spaced(token, loose) for token in unit] for unit in self.units])

    def final_units(self) -> list[list[Token]]:
        """The units that can no longer change if the container may go on and its lines are complete."""
        if not self.is_list:
            return self.units
        return [] if self.loose is None else self.units[:-1]


@dataclass(frozen=True, slots=True)
class OpenContainer:
    """A container of which some units are final while more may come.

    Attributes:
        start: where it begins in the text, in characters. place: the number of the place from which on it would be taken back.
        head: lines without which a later piece of it cannot be read (a table's head).
        loose: whether a list's items stand apart. kind, closing: see `Container`.
    """

    start: int
    place: int
    head: str
    kind: tuple[str, str]
    loose: bool
    closing: list[Token]

    def goes_on(self, blocks: list[list[Token]], text: str) -> bool:
        """Whether `blocks`, which were read from `text`, begin with more of it, and leave what is final of it as it is."""
        if not blocks or (blocks[0][0].type, blocks[0][0].markup) != self.kind:
            return False
        more = container_of(blocks[0])
        if more is None or not more.is_list or self.loose:
            return True
        blank = any(not line.strip() for line in text.split("\n")[:-1])
        return more.loose is False or (more.loose is None and not blank)


def container_of(block: list[Token]) -> Container | None:
    """A top-level block as a container; None for other blocks, and for a table that has no rows yet."""
    if block[0].type in LISTS:
        return Container(block[:1], _cut(block[1:-1], "list_item_close", 1), block[-1:])
    if block[0].type == "table_open":
        body = next((place for place, token in enumerate(block) if token.type == "tbody_open"), None)
        if body is not None:
            return Container(block[: body + 1], _cut(block[body + 1 : -2], "tr_close", 2), block[-2:])
    return None


def moved(tokens: Iterable[Token], lines: int) -> list[Token]:
    """Tokens whose lines are counted from elsewhere."""
    return [token.copy(map=[token.map[0] + lines, token.map[1] + lines]) if lines and token.map else token for token in tokens]


def units_of(tokens: Iterable[Token]) -> list[list[Token]]:
    """Tokens, of which a container's may lack its beginning or end, cut into what is written and copied as one: items, and other blocks."""
    units: list[list[Token]] = [[]]
    for token in tokens:
        if token.type in ("bullet_list_close", "ordered_list_close") and token.level == 0 and not units[-1] and len(units) > 1:
            units[-2].append(token)
            continue
        units[-1].append(token)
        if (token.level == 0 and token.nesting <= 0) or (token.level == 1 and token.type == "list_item_close"):
            units.append([])
    return [unit for unit in units if unit]


def lines_of(unit: list[Token]) -> tuple[int, int] | None:
    """The lines that a unit takes in the text it was read from, the second one excluded."""
    maps = [token.map for token in unit if token.map and not (token.type in LISTS and token.level == 0)]
    return (maps[0][0], max(end for _, end in maps)) if maps else None


def _cut(tokens: list[Token], end: str, level: int) -> list[list[Token]]:
    units: list[list[Token]] = [[]]
    for token in tokens:
        units[-1].append(token)
        if token.type == end and token.level == level:
            units.append([])
    return units[:-1]


def _spaced(token: Token, loose: bool) -> Token:
    if token.level != 2 or token.type not in ("paragraph_open", "paragraph_close") or token.hidden is not loose:
        return token
    return token.copy(hidden=not loose)
