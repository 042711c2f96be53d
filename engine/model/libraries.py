"""One thread at a time brings in the model libraries. transformers loads its parts at their first use, and two threads that do so at once
(one loads a model, another looks whether a second one would fit) meet half-made modules. Imports nothing itself."""

from __future__ import annotations

import threading

LIBRARIES = threading.RLock()  # held while anything of transformers is used that may import more of it
