"""The dashboard: seats, queue, KV blocks, timeline and decisions of the engine that runs the chats, and the controls to steer it.

Reads nothing but the engine's snapshot and history; runs only while it is seen.
"""

from app.dashboard.page import DashboardPage
from app.dashboard.strip import EngineStrip

__all__ = ["DashboardPage", "EngineStrip"]
