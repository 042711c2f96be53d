"""Omnibus' engine: continuous batching of many chats over one model, in this process.

This is the public face; nothing else is imported from outside. Importing it is cheap: torch comes in with the engine's thread, and
replay and comparison of traces with their first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from engine.engine import Engine
from engine.handle import RequestHandle, Result
from engine.opened import OpenModel, Prompt
from engine.text.reasoning import ReasoningSplitter, split_reasoning
from engine.trace.trace import Trace, TraceError
from engine.types import (
    OWNER_CACHED,
    OWNER_FREE,
    OWNER_SEAT0,
    OWNER_SHARED,
    Chat,
    Counters,
    Decision,
    DecisionKind,
    EngineConfig,
    EngineError,
    EngineState,
    ErrorInfo,
    Event,
    FinishedEvent,
    FinishReason,
    Grammar,
    GrammarKind,
    KvView,
    Message,
    ModelError,
    ModelView,
    Phase,
    Policy,
    Priority,
    QueueView,
    Rates,
    RequestRefused,
    SamplingParams,
    SeatStep,
    SeatView,
    Snapshot,
    StepRecord,
    TimeSplit,
    TokenLogprob,
    TokensEvent,
    Tool,
    ToolCall,
    Usage,
    WaitReason,
)

__all__ = [
    "OWNER_CACHED",
    "OWNER_FREE",
    "OWNER_SEAT0",
    "OWNER_SHARED",
    "Chat",
    "CostModel",
    "Counters",
    "Decision",
    "DecisionKind",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineState",
    "ErrorInfo",
    "Event",
    "FinishReason",
    "FinishedEvent",
    "Grammar",
    "GrammarKind",
    "KvView",
    "Message",
    "ModelError",
    "ModelView",
    "OpenModel",
    "Phase",
    "Playback",
    "Policy",
    "PolicyResult",
    "Priority",
    "Prompt",
    "QueueView",
    "Rates",
    "ReasoningSplitter",
    "RequestHandle",
    "Replay",
    "RequestRefused",
    "Result",
    "SamplingParams",
    "ScriptedRequest",
    "SeatStep",
    "SeatView",
    "Snapshot",
    "StagedEngine",
    "StepRecord",
    "TimeSplit",
    "TokenLogprob",
    "TokensEvent",
    "Tool",
    "ToolCall",
    "Trace",
    "TraceError",
    "Usage",
    "WaitReason",
    "compare_policies",
    "replay",
    "rush_hour",
    "split_reasoning",
]

_LATE = {
    "PolicyResult": "engine.trace.compare",
    "compare_policies": "engine.trace.compare",
    "Playback": "engine.trace.playback",
    "Replay": "engine.trace.replay",
    "CostModel": "engine.sim",
    "ScriptedRequest": "engine.bench.load",
    "rush_hour": "engine.bench.load",
    "StagedEngine": "engine.staged",
    "replay": "engine.trace.replay",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
