"""Plain frozen data that crosses the engine's border: parameters, events, snapshots, decisions, errors.

Owns no behaviour beyond validation. Must never import torch, Qt or anything of the engine's inside, so that the window, the
server, the trace tools and the tests can share these names for free. Units: seconds for times, tokens for lengths.
"""

from __future__ import annotations

from engine.types.asking import Chat, Grammar, GrammarKind, Message, Pooling, SamplingParams, Tool, ToolCall
from engine.types.config import CLASS_DTYPES, KV_CLASSES, MOST_THREADS, EngineConfig
from engine.types.errors import EngineError, ErrorInfo, ModelError, RequestRefused
from engine.types.events import Event, FinishedEvent, TimeSplit, TokenLogprob, TokensEvent, Usage
from engine.types.records import Decision, DecisionKind, SeatStep, StepRecord
from engine.types.sentences import Sentence
from engine.types.views import (
    OWNER_CACHED,
    OWNER_FREE,
    OWNER_SEAT0,
    OWNER_SHARED,
    Counters,
    KvView,
    ModelView,
    QueueView,
    Rates,
    SeatView,
    Snapshot,
)
from engine.types.words import EngineState, FinishReason, Phase, Policy, Priority, WaitReason

__all__ = [
    "CLASS_DTYPES",
    "Chat",
    "Counters",
    "Decision",
    "DecisionKind",
    "EngineConfig",
    "EngineError",
    "EngineState",
    "ErrorInfo",
    "Event",
    "FinishReason",
    "FinishedEvent",
    "Grammar",
    "GrammarKind",
    "KV_CLASSES",
    "MOST_THREADS",
    "KvView",
    "Message",
    "ModelError",
    "ModelView",
    "OWNER_CACHED",
    "OWNER_FREE",
    "OWNER_SEAT0",
    "OWNER_SHARED",
    "Phase",
    "Policy",
    "Pooling",
    "Priority",
    "QueueView",
    "Rates",
    "RequestRefused",
    "SamplingParams",
    "SeatStep",
    "SeatView",
    "Sentence",
    "Snapshot",
    "StepRecord",
    "TimeSplit",
    "TokenLogprob",
    "TokensEvent",
    "Tool",
    "ToolCall",
    "Usage",
    "WaitReason",
]
