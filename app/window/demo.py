"""The load that one click on the dashboard starts: chats of different lengths on the real engine, so that there is something to see."""

from __future__ import annotations

# Text and longest answer in tokens: long and short riders mixed, so that seats come free at different times.
DEMO_CHATS: tuple[tuple[str, int], ...] = (
    ("Write a long story about a bus driver who never stops learning the city.", 360),
    ("Name three colours.", 40),
    ("Explain how rain forms, step by step.", 220),
    ("Write a letter to a friend who moved to another country.", 300),
    ("What is seven times eight?", 30),
    ("List ten animals and one fact about each.", 260),
    ("Describe a market in the morning.", 160),
    ("Give advice to someone who learns to cook.", 200),
    ("Write a haiku about the sea.", 50),
    ("Tell the history of the bicycle.", 280),
)
