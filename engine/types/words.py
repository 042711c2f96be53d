"""The fixed words of the engine: states, reasons, classes. Their values are part of files and of the API."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class FinishReason(StrEnum):
    STOP = "stop"  # end-of-text token, stop id or stop string
    LENGTH = "length"  # max_tokens, the model's context or the whole pool is used up
    CANCELLED = "cancelled"
    ERROR = "error"


class Priority(IntEnum):
    """Priority classes; a lower number boards first."""

    FOREGROUND = 0  # the tab in view
    BACKGROUND = 1  # other tabs
    API = 2  # the HTTP server's clients
    IDLE = 3  # titles and other chores


class Policy(StrEnum):
    IN_FLIGHT = "in_flight"  # city bus: a free seat is taken at the next step
    STATIC = "static"  # tour bus: the next group boards when the last of this one is done


class Phase(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"


class EngineState(StrEnum):
    STARTING = "starting"  # the thread is up, no model yet
    LOADING = "loading"
    EMPTY = "empty"  # the model was let go to free its memory; the next request, or load(), brings it back
    READY = "ready"  # a model is loaded; idle or running
    PAUSED = "paused"  # steps are held back; requests keep queueing
    FAILED = "failed"  # no model could be loaded, or three steps in a row failed; restart() brings it back
    CLOSED = "closed"


class WaitReason(StrEnum):
    """Why a request stands in the queue."""

    LOADING = "loading"  # the model is not ready yet
    MODEL = "model"  # asks for another model than the one that is loaded
    PAUSED = "paused"
    SEATS = "seats"  # no free seat
    BLOCKS = "blocks"  # `needs` blocks, `available` free
    GROUP = "group"  # static policy: the present group is still riding
    PRIORITY = "priority"  # behind requests of a higher class
    TURN = "turn"  # behind earlier arrivals of the same class
    PREFIX = "prefix"  # another request is computing the same prefix right now
    PREEMPTED = "preempted"  # lost its blocks; comes back first
