"""Small tasks for `omnibus bench parity`: texts whose perplexity is compared, and questions with answers to choose from.

Written for this purpose, so that they can travel with the program. They do not rate a model: the model's own choice is what ours must be.
"""

from __future__ import annotations

TEXTS = (
    "The bus left the harbour at seven and climbed the hill through the old town.",
    "Bread rises because yeast turns sugar into gas, and the dough holds the bubbles.",
    "She opened the window, listened to the rain for a while, and went back to her letter.",
    "A prime number has exactly two divisors, one and itself; two is the only even one.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n\nprint(area(2))",
    "Water boils at a lower temperature on a mountain, since the air above it weighs less.",
    "Dear Anna, thank you for watering the plants while we were away. They look better than before.",
    "The committee met on Tuesday, agreed on nothing, and decided to meet again on Thursday.",
    "Les trains partent toutes les heures, sauf le dimanche matin.",
    "In 1969 two people walked on the Moon while a third one waited in orbit above them.",
    "First cut the onion, then warm the oil, and only then add the rice and the stock.",
    "| city | people |\n|---|---|\n| Bern | 134,000 |\n| Graz | 292,000 |",
)

_CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Russia": "Moscow",
    "China": "Beijing",
    "Austria": "Vienna",
    "Portugal": "Lisbon",
    "Norway": "Oslo",
}
_KINDS = {
    "an apple": "fruit",
    "a hammer": "tool",
    "a violin": "instrument",
    "a sparrow": "bird",
    "a salmon": "fish",
    "an oak": "tree",
    "a rose": "flower",
    "a bus": "vehicle",
    "a sofa": "piece of furniture",
    "a shirt": "piece of clothing",
}
_OTHERWISE = {
    "hot": "cold",
    "big": "small",
    "old": "young",
    "early": "late",
    "open": "closed",
    "light": "dark",
    "fast": "slow",
    "full": "empty",
    "high": "low",
    "wet": "dry",
}


def _questions(table: dict[str, str], sentence: str) -> list[tuple[str, tuple[str, ...], int]]:
    """(how a sentence begins, four ways to end it, the right one), the wrong ones being right elsewhere in the table."""
    answers = list(table.values())
    made = []
    for number, (name, right) in enumerate(table.items()):
        choices = [answers[(number + step) % len(answers)] for step in range(4)]
        turned = choices[number % 4 :] + choices[: number % 4]
        made.append((sentence.format(name), tuple(turned), turned.index(right)))
    return made


QUESTIONS: tuple[tuple[str, tuple[str, ...], int], ...] = (
    *_questions(_CAPITALS, "The capital of {} is"),
    *_questions(_KINDS, "Everybody knows that {} is a kind of"),
    *_questions(_OTHERWISE, "The opposite of {} is"),
)
