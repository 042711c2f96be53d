"""Errors after which a device is lost to this process: every further call on it fails, so nothing may be tried again, and nobody is blamed.

CUDA says of them that "the process must be terminated and relaunched" (cudaErrorIllegalAddress, cudaErrorAssert, cudaErrorLaunchFailure and
their kin; HIP has the same). Known by their words, so that torch need not be there.
"""

from __future__ import annotations

from engine.types import EngineError, Sentence

CODE = "device_lost"

_WORDS = (
    "illegal memory access",
    "misaligned address",
    "illegal instruction was encountered",
    "illegal address",
    "invalid program counter",
    "device-side assert",
    "unspecified launch failure",
    "launch timed out and was terminated",
    "uncorrectable ecc",
    "hardware stack error",
    "gpu is lost",
    "has fallen off the bus",
    "device lost",
)
_KINDS = ("cuda", "hip", "nvml", "acceleratorerror", "xpu", "vulkan")


def lost_device(error: BaseException) -> bool:
    """Whether the device is lost to this process."""
    if isinstance(error, EngineError):
        return error.code == CODE
    words = f"{type(error).__name__}: {error}".lower()
    return isinstance(error, RuntimeError) and any(kind in words for kind in _KINDS) and any(word in words for word in _WORDS)


def device_lost(error: BaseException) -> EngineError:
    """The same, for a person."""
    if isinstance(error, EngineError):
        return error
    reason = str(error).strip().splitlines()[0][:120].rstrip(".") if str(error).strip() else type(error).__name__
    sentence = Sentence("The graphics processor failed and cannot be used any more by this run of the program: {0}.", reason)
    return EngineError(CODE, sentence, "Restart Omnibus; your chats are safe, and it offers to go on where they were.")
