"""Numbers and states in a person's words: the dashboard's vocabulary, in one place so that every view says the same thing.

Owns no state and paints nothing. Every string goes through Qt's translation.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.numbers import number, said
from engine import DecisionKind, EngineState, Phase, Policy, Priority, WaitReason

translate = QCoreApplication.translate

DASH = "–"


def trouble(error: Exception) -> str:
    """What the system said, without its number and the path, which stand in the sentence around it."""
    return getattr(error, "strerror", None) or str(error)


def count(value: int) -> str:
    """`12345` → "12,345"."""
    return number(value, ",")


def tokens(value: int) -> str:
    return translate("Dashboard", "1 token") if value == 1 else translate("Dashboard", "{0} tokens").format(count(value))


def rate(value: float) -> str:
    """Tokens a second: one decimal below 100, none above."""
    return number(value, ",.1f" if value < 99.95 else ",.0f")


def seconds(value: float | None) -> str:
    """A duration in the unit a person would use; a dash where there is none."""
    if value is None:
        return DASH
    if value < 0.0995:
        return number(value * 1000, ".0f") + " ms"
    if value < 9.95:
        return number(value, ".2f" if value < 0.995 else ".1f") + " s"
    if value < 59.5:
        return f"{value:.0f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def expected(value: float | None) -> str:
    """When a waiting request is likely to board."""
    if value is None:
        return ""
    if value < 0.75:
        return translate("Dashboard", "soon")
    return translate("Dashboard", "in ~{0}").format(f"{value:.0f} s" if value < 99.5 else f"{value / 60:.0f} min")


def size(value: int) -> str:
    """Bytes in binary units."""
    amount = float(value)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return number(amount, ".1f") + " GB"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else DASH


def policy(value: Policy) -> str:
    return translate("Dashboard", "City bus") if value is Policy.IN_FLIGHT else translate("Dashboard", "Tour bus")


def policy_rule(value: Policy) -> str:
    if value is Policy.IN_FLIGHT:
        return translate("Dashboard", "a free seat is taken at the next token")
    return translate("Dashboard", "the next group boards when the last of this one is done")


def setting(detail: str) -> str:
    """A change of settings as the engine notes it, in words, with the policies by their names here."""
    words = said(detail)
    for value in Policy:
        words = words.replace(f"policy {value}", policy(value))
    return words


def phase(value: Phase) -> str:
    return {
        Phase.WAITING: translate("Dashboard", "waiting"),
        Phase.PREFILL: translate("Dashboard", "reading the prompt"),
        Phase.DECODE: translate("Dashboard", "answering"),
        Phase.FINISHED: translate("Dashboard", "finished"),
    }[value]


def priority(value: Priority) -> str:
    return {
        Priority.FOREGROUND: translate("Dashboard", "Foreground"),
        Priority.BACKGROUND: translate("Dashboard", "Background"),
        Priority.API: translate("Dashboard", "API"),
        Priority.IDLE: translate("Dashboard", "Idle"),
    }[value]


def class_sign(value: Priority) -> str:
    """A class in a sign, for where there is no room for its name; nothing for an ordinary tab's."""
    return {Priority.FOREGROUND: "↑", Priority.API: translate("Dashboard", "API"), Priority.IDLE: "↓"}.get(value, "")


def state(value: EngineState) -> str:
    return {
        EngineState.STARTING: translate("Dashboard", "starting"),
        EngineState.LOADING: translate("Dashboard", "loading"),
        EngineState.EMPTY: translate("Dashboard", "no model loaded"),
        EngineState.READY: translate("Dashboard", "ready"),
        EngineState.PAUSED: translate("Dashboard", "paused"),
        EngineState.FAILED: translate("Dashboard", "failed"),
        EngineState.CLOSED: translate("Dashboard", "closed"),
    }[value]


def wait_reason(value: WaitReason) -> str:
    return {
        WaitReason.LOADING: translate("Dashboard", "the model is loading"),
        WaitReason.MODEL: translate("Dashboard", "asks for another model"),
        WaitReason.PAUSED: translate("Dashboard", "the engine is paused"),
        WaitReason.SEATS: translate("Dashboard", "no free seat"),
        WaitReason.BLOCKS: translate("Dashboard", "not enough free blocks"),
        WaitReason.GROUP: translate("Dashboard", "the group is still riding"),
        WaitReason.PRIORITY: translate("Dashboard", "behind a higher priority"),
        WaitReason.TURN: translate("Dashboard", "behind earlier arrivals"),
        WaitReason.PREFIX: translate("Dashboard", "another chat is computing its prefix"),
        WaitReason.PREEMPTED: translate("Dashboard", "gave its blocks away, comes back first"),
    }[value]


def decision(value: DecisionKind) -> str:
    return {
        DecisionKind.SUBMIT: translate("Dashboard", "arrives"),
        DecisionKind.ADMIT: translate("Dashboard", "boards"),
        DecisionKind.PREEMPT: translate("Dashboard", "steps aside"),
        DecisionKind.FINISH: translate("Dashboard", "gets off"),
        DecisionKind.CANCEL: translate("Dashboard", "cancelled"),
        DecisionKind.FAIL: translate("Dashboard", "failed"),
        DecisionKind.CONFIG: translate("Dashboard", "setting"),
        DecisionKind.EVICT: translate("Dashboard", "evicts"),
    }[value]
