"""The menu of a rider, in a seat or in the queue: where to go, in which class to ride, and the way out. Asks by the calls it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu, QWidget

from app.dashboard import wording
from app.dashboard.riders import ChipCell, SeatCell
from app.dashboard.wording import translate
from engine import Priority


def rider_menu(
    parent: QWidget,
    cell: SeatCell | ChipCell,
    open_chat: Callable[[str], None],
    set_priority: Callable[[str, Priority], None],
    cancel: Callable[[str], None],
) -> QMenu:
    """A menu that is gone once it is closed. Of another client's request nothing but its name can be known, and nothing be done."""
    menu = QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    ours = bool(cell.request_id)
    menu.addAction(translate("Dashboard", "Go to chat"), asking(open_chat, cell.chat_id)).setEnabled(bool(cell.chat_id))
    menu.addSection(translate("Dashboard", "Priority"))
    for priority in Priority:
        action = menu.addAction(wording.priority(priority), asking(set_priority, cell.request_id, priority))
        action.setCheckable(True)
        action.setChecked(priority is cell.priority)
        action.setEnabled(ours)
    menu.addSeparator()
    menu.addAction(translate("Dashboard", "Stop this answer"), asking(cancel, cell.request_id)).setEnabled(ours)
    return menu


def asking(call: Callable[..., None], *values: Any) -> Callable[[], None]:
    """The call with its values, deaf to what an action tells of itself."""
    return lambda: call(*values)
