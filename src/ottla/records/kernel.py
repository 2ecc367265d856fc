"""Whether the compiled kernel is in use: decided here, and said once.

`compiled` is the extension module, or None; every caller then has a slower way that gives the same
results. OTTLA_KERNEL=off in the environment chooses the slower way on purpose.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from types import ModuleType

_log = logging.getLogger(__name__)


def _load() -> ModuleType | None:
    if os.environ.get("OTTLA_KERNEL", "").lower() == "off":
        _log.info("records: the compiled kernel is switched off (OTTLA_KERNEL=off); using plain Python")
        return None
    try:
        module = import_module("ottla.records._kernel")
    except ImportError as e:
        _log.warning("records: the compiled kernel is not there (%s); using plain Python, which is slower", e)
        return None
    _log.info("records: using the compiled kernel")
    return module


compiled: ModuleType | None = _load()
AVAILABLE: bool = compiled is not None
