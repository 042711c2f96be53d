"""The window's session: which tabs are open, as text that another day can restore. Knows no store."""

from __future__ import annotations

import json
from typing import Any

from PySide6.QtCore import QByteArray

from app.window.main_window import MainWindow


def describe(window: MainWindow) -> str:
    """The open tabs, the one in view, which sides are open and how wide, and where the window stands."""
    kept = [chat_id for chat_id in window.open_chats if not window.book[chat_id].empty or window.book[chat_id].drafted]
    record: dict[str, Any] = {"tabs": kept, "current": window.current_chat, "sidebar": not window.sidebar.collapsed}
    record["panel"] = not window.parts.panel.isHidden()
    record["closed"] = window.open_tabs.closed
    record["dashboard"], record["divided"] = window.parts.dashboard_mode, window.parts.divided
    record["geometry"] = bytes(window.saveGeometry().toBase64().data()).decode()
    return json.dumps(record)


def restore(window: MainWindow, text: str | None) -> None:
    """Open the tabs of another day again. What cannot be read, or is gone, is passed over."""
    try:
        session = json.loads(text or "{}")
        tabs, current, sidebar = list(session.get("tabs", ())), session.get("current"), bool(session.get("sidebar", True))
        panel, geometry = bool(session.get("panel")), str(session.get("geometry", ""))
        dashboard, divided = session.get("dashboard"), [int(width) for width in session.get("divided", ())]
        closed = [(str(chat_id), max(0, int(place))) for chat_id, place in session.get("closed", ())]
    except (ValueError, AttributeError, TypeError):
        return
    known = [chat_id for chat_id in tabs if isinstance(chat_id, str) and chat_id in window.book]
    first = window.open_chats[0]  # the empty one that a window begins with
    window.add_tabs(known)
    if known:
        window.open_chat(current if current in known else known[-1])
        if window.book[first].empty and not window.book[first].drafted:
            window.close_tab(window.tabs.index_of(first))
    window.open_tabs.set_closed(closed)
    window.sidebar.set_collapsed(not sidebar)
    if panel is window.parts.panel.isHidden():
        window.parts.toggle_panel()
    if len(divided) == 2 and all(0 < width < 20_000 for width in divided):
        window.parts.divide(divided)
    if dashboard in ("beside", "full"):
        window.parts.set_dashboard(dashboard)
    # Qt brings a window whose screen is gone onto one that is there; what it cannot read changes nothing.
    window.restoreGeometry(QByteArray.fromBase64(geometry.encode()))
