"""What the engine finds on this machine, as one JSON document: `python -m engine.probe torch`, and the same with `places` or `models`.

Run as a process of its own by `omnibus doctor`, because a broken driver can hang or abort whoever asks torch for devices, and because a
broken installation must not take the doctor along. Loads no model, changes nothing.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

MOST_MODELS = 20


def probe_torch() -> dict[str, Any]:
    """Versions, thread count, what held torch back (warnings), our own kernels ("ready" and for which kind of CPU, or why not), and the
    devices with their memory in bytes (None where it is shared)."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import torch

        from engine.model.native import library

        devices = accelerators()
        kernels = library.fault()
    return {
        "version": str(torch.__version__),
        "import_s": round(time.perf_counter() - began, 3),
        "cuda_build": torch.version.cuda,
        "rocm_build": torch.version.hip,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "own_kernels": kernels or f"ready ({library.kind()})",
        "devices": [*devices, {"kind": "cpu", "name": "cpu", "memory": None, "free": None}],
        "warnings": [str(warning.message) for warning in caught],
    }


def accelerators() -> list[dict[str, Any]]:
    """The accelerators that torch can use."""
    import torch

    if torch.cuda.is_available():
        return [cuda_device(index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        return [{"kind": "mps", "name": "Apple GPU", "memory": None, "free": None}]
    return []


def cuda_device(index: int) -> dict[str, Any]:
    """torch calls AMD's devices cuda, too; here they are told apart."""
    import torch

    free, total = torch.cuda.mem_get_info(index)
    return {
        "kind": "rocm" if torch.version.hip else "cuda",
        "name": torch.cuda.get_device_name(index),
        "memory": total,
        "free": free,
        "capability": ".".join(map(str, torch.cuda.get_device_capability(index))),
    }


def probe_places() -> dict[str, Any]:
    """Where the person's data and the models lie, and whether the starter model is there and whole."""
    from engine.catalog import paths, starter

    return {
        "data": str(paths.data_dir()),
        "cache": str(paths.cache_dir()),
        "starter": {"name": starter.NAME, "path": str(starter.folder()), "ready": starter.ready()},
    }


def probe_models() -> dict[str, Any]:
    """The models on this machine, and of each what would run: how it fits, or why it cannot."""
    from engine.catalog import starter
    from engine.catalog.fit import fit, this_machine
    from engine.catalog.registry import Kind, Registry
    from engine.model.loading import find_files
    from engine.types import EngineError

    found = []
    machine = this_machine()
    for entry in Registry().entries()[:MOST_MODELS]:
        about: dict[str, Any] = {"name": entry.name, "kind": str(entry.kind), "size": entry.size, "says": "its files are not there"}
        if entry.ready:
            try:
                answer = fit(starter.folder() if entry.kind is Kind.STARTER else find_files(entry.source)[0], machine)
            except EngineError as error:
                about["says"] = error.message
            else:
                about |= {"says": answer.sentence, "precision": answer.precision, "device": answer.device, **answer.as_json()}
        found.append(about)
    return {"models": found}


PROBES = {"models": probe_models, "torch": probe_torch, "places": probe_places}

if __name__ == "__main__":
    json.dump(PROBES[sys.argv[1]](), sys.stdout)
