"""Steps that are functions in Python: finding them, calling them, and telling what is wrong with them.

Modules beside the pipeline's file come before all others. Knows nothing of what the functions do.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ottla.errors import OttlaError
from ottla.pipelines.errors import PipelineInvalid, Problem
from ottla.pipelines.spark_errors import message_of
from ottla.pipelines.spec import PythonStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIGNATURE = "Write it as `def {name}(frame): return frame`, one argument for each of `from`"


def called(step: PythonStep, frames: Sequence[DataFrame], *, directory: Path) -> DataFrame:
    """What the step's function makes of the frames."""
    function = loaded(step, directory=directory)
    try:
        made = function(*frames)
    except OttlaError:
        raise
    except Exception as e:
        raise _invalid(step, f"{step.function} failed with {_told(e)}", "Correct the function") from e
    if not _is_frame(made):
        said = f"{step.function} returned {type(made).__name__}, which is no frame"
        raise _invalid(step, said, "Let it return a DataFrame")
    found: DataFrame = made
    return found


def loaded(step: PythonStep, *, directory: Path) -> Callable[..., Any]:
    """The function itself."""
    module_name, _, name = step.function.partition(":")
    try:
        module = _module(module_name, directory)
    except ModuleNotFoundError as e:
        if e.name is not None and (module_name == e.name or module_name.startswith(e.name + ".")):
            fix = f"Put {module_name.split('.')[0]}.py beside the pipeline's file, or install it"
            raise _invalid(step, f"there is no module {module_name}", fix) from e
        raise _invalid(step, f"{module_name} cannot be loaded: {_told(e)}", "Install what it needs") from e
    except Exception as e:
        # A module is a program: whatever it raises while it is loaded is its author's to see.
        raise _invalid(step, f"{module_name} cannot be loaded: {_told(e)}", "Correct the module") from e
    function = getattr(module, name, None)
    if not callable(function):
        raise _invalid(step, f"{module_name} has no function {name}", _SIGNATURE.format(name=name))
    _send_with_queries(module, directory)
    found: Callable[..., Any] = function
    return found


def _module(name: str, directory: Path) -> ModuleType:
    there = sys.modules.get(name)
    if there is not None and not _is_shadowed(there, name, directory):
        return there
    if there is not None:
        # Another pipeline of this process has a module of the same name beside its own file.
        del sys.modules[name]
    text = str(directory)
    if text not in sys.path:
        sys.path.insert(0, text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _is_shadowed(module: ModuleType, name: str, directory: Path) -> bool:
    """Whether the directory has a file for this module, and the module comes from another one."""
    own = directory.joinpath(*name.split("."))
    files = [own.with_suffix(".py"), own / "__init__.py"]
    known = getattr(module, "__file__", None)
    return any(file.is_file() for file in files) and (known is None or Path(known).resolve() not in files)


def _send_with_queries(module: ModuleType, directory: Path) -> None:
    """Let Spark's workers, which do not see the directory, get the module's functions with the queries."""
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).resolve().is_relative_to(directory):
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _is_frame(value: object) -> bool:
    # Frames of Spark Connect are of another class, and only there when its packages are.
    return hasattr(value, "writeStream") and hasattr(value, "createOrReplaceTempView")


def _told(error: Exception) -> str:
    """An error in one line, with the line of the module that it came from."""
    said = message_of(error)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said}{where}"


def _invalid(step: PythonStep, what: str, fix: str) -> PipelineInvalid:
    return PipelineInvalid([Problem(step.place, f"step `{step.name}`: {what}", fix)])
