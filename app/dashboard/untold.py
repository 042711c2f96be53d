"""What an engine does not tell. A server elsewhere has its metrics and no more; the dashboard says plainly what that leaves out.

A pure function of the snapshot: what counts is what is missing in it, whoever published it.
"""

from __future__ import annotations

from app.dashboard.wording import translate
from engine import EngineState, Snapshot

BYTES_A_CODE = 2


def owners_told(snapshot: Snapshot) -> bool:
    """Whether every block has its owner in the snapshot."""
    return len(snapshot.kv.owners) == BYTES_A_CODE * snapshot.kv.total


def steps_untold(snapshot: Snapshot) -> bool:
    """Whether answers come without any step having been told."""
    return not snapshot.step and bool(snapshot.counters.output_tokens or snapshot.seated)


def first_token_untold(snapshot: Snapshot) -> bool:
    """Whether answers have come, but not how long the first token took."""
    return steps_untold(snapshot) and bool(snapshot.counters.output_tokens) and not snapshot.rates.ttft_p50_s


def untold(snapshot: Snapshot) -> str:
    """One sentence on what is missing, "" when nothing is. While a model loads nothing is expected yet."""
    if snapshot.state not in (EngineState.READY, EngineState.PAUSED):
        return ""
    missing = []
    if not snapshot.kv.total:
        missing.append(translate("Dashboard", "how full its KV cache is"))
    elif not owners_told(snapshot):
        missing.append(translate("Dashboard", "which block is whose"))
    if snapshot.waiting and not snapshot.queue:
        missing.append(translate("Dashboard", "who waits, and why"))
    if first_token_untold(snapshot):
        missing.append(translate("Dashboard", "how soon its first tokens come"))
    if steps_untold(snapshot):
        missing.append(translate("Dashboard", "what its steps do"))
    if not missing:
        return ""
    last = missing.pop()
    both = translate("Dashboard", "{0} and {1}").format(", ".join(missing), last) if missing else last
    return translate("Dashboard", "This engine does not tell {0}. All else on this page is from its own figures.").format(both)
