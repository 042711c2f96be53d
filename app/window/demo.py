"""The load that one click on the dashboard starts: the rush hour of `omnibus demo`, as chats in tabs on the real engine.

Owns the timing of its arrivals. The chats it makes are chats like all others: they can be read, stopped, gone on with and deleted;
`DemoChats` makes them, and offers to remove them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

from app.chats.model import ChatSettings
from engine import ScriptedRequest, rush_hour


class DemoRun(QObject):
    """Lets the scripted chats come, each at its time. Once more while it runs begins anew.

    Args:
        arrive: called with the title, the settings and the text of each.
        step_s: duration of a decode step here, in seconds; 0 while it is not known.
    """

    def __init__(
        self,
        arrive: Callable[[str, ChatSettings, str], None],
        step_s: Callable[[], float],
        parent: QObject | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(parent)
        self._arrive = arrive
        self._step_s = step_s
        self._clock = clock
        self._begun = 0.0
        self._pace = 1.0
        self._coming: deque[ScriptedRequest] = deque()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.advance)

    @property
    def coming(self) -> int:
        """How many have not arrived yet."""
        return len(self._coming)

    def start(self) -> None:
        load = rush_hour()
        self._pace = load.pace_for(self._step_s())
        self._coming = deque(sorted(load.requests, key=lambda request: request.at_s))
        self._begun = self._clock()
        self.advance()

    def stop(self) -> None:
        """Nobody comes any more."""
        self._coming.clear()
        self._timer.stop()

    def advance(self) -> None:
        """Let everyone in who is due by now."""
        now = self._clock() - self._begun
        while self._coming and self._coming[0].at_s * self._pace <= now:
            request = self._coming.popleft()
            self._arrive(request.title, *chat_of(request))
        if self._coming:
            self._timer.start(max(1, round(1000 * (self._coming[0].at_s * self._pace - now))))


def chat_of(request: ScriptedRequest) -> tuple[ChatSettings, str]:
    """A scripted request as settings and first message of a chat."""
    if isinstance(request.prompt, str):
        return ChatSettings(max_tokens=request.tokens), request.prompt
    turns = [turn for turn in request.prompt if not isinstance(turn, int)]
    system = "\n\n".join(turn.content for turn in turns if turn.role == "system")
    said = "\n\n".join(turn.content for turn in turns if turn.role != "system")
    return ChatSettings(system_prompt=system, max_tokens=request.tokens), said
