"""Python's collector in Spark's workers, which is made to look at everything after each task.

A worker has a few hundred thousand objects from its imports, and to look at them takes twenty milliseconds of computing
each time: as much as a small batch.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle(stage: str) -> None:
    """Once per process and stage: what is there by now stays, so no collection needs to look at it again.

    Called where all that a stage of a worker's life needs has been imported.
    """
    gc.collect()
    gc.freeze()
