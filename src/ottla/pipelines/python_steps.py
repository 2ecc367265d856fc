"""Steps that are functions in Python: finding them, calling them, and telling what is wrong with them.

Modules beside the pipeline's file come before all others. Knows nothing of what the functions do.
"""

from __future__ import annotations

import importlib
import inspect
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

OWN_PACKAGES = ("ottla", "pyspark_ottla")
"""Workers have them, whatever directory they are in."""
_SIGNATURE = "Write it as `def {name}(frame): return frame`, one argument for each of `from`"


def called(step: PythonStep, frames: Sequence[DataFrame], *, directory: Path) -> DataFrame:
    """What the step's function makes of the frames."""
    function = loaded(step, directory=directory)
    if (reason := _why_not_called(function, frames)) is not None:
        name = step.function.partition(":")[2]
        raise _invalid(step, f"{step.function} cannot take what `from` has: {reason}", _SIGNATURE.format(name=name))
    try:
        made = function(*frames)
    except OttlaError:
        raise
    except Exception as e:
        told = _told(e, step, directory)
        raise _invalid(step, f"{step.function} failed with {told}", "Correct the function") from e
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
        said = f"{module_name} cannot be loaded: {_told(e, step, directory)}"
        raise _invalid(step, said, "Install what it needs") from e
    except Exception as e:
        # A module is a program: whatever it raises while it is loaded is its author's to see.
        said = f"{module_name} cannot be loaded: {_told(e, step, directory)}"
        raise _invalid(step, said, "Correct the module") from e
    function = getattr(module, name, None)
    if not callable(function):
        raise _invalid(step, f"{module_name} has no function {name}", _SIGNATURE.format(name=name))
    _send_with_queries(module, directory)
    found: Callable[..., Any] = function
    return found


def _why_not_called(function: Callable[..., Any], frames: Sequence[DataFrame]) -> str | None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions that are not written in Python do not tell.
        return None
    try:
        signature.bind(*frames)
    except TypeError as e:
        return str(e)
    return None


def _module(name: str, directory: Path) -> ModuleType:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        above = ".".join(parts[:count])
        there = sys.modules.get(above)
        if there is not None and _is_shadowed(there, above, directory):
            # Another pipeline of this process has a module of the same name beside its own file.
            for known in [other for other in sys.modules if other == above or other.startswith(above + ".")]:
                del sys.modules[known]
    there = sys.modules.get(name)
    if there is not None:
        return there
    text = str(directory)
    if text in sys.path:
        # It may stand behind the directory of another pipeline, which would come before it.
        sys.path.remove(text)
    sys.path.insert(0, text)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _is_shadowed(module: ModuleType, name: str, directory: Path) -> bool:
    """Whether the directory has a file for this module, and the module comes from another one."""
    files = [file.resolve() for file in _files_of(name, directory) if file.is_file()]
    known = getattr(module, "__file__", None)
    return bool(files) and (known is None or Path(known).resolve() not in files)


def _files_of(name: str, directory: Path) -> tuple[Path, Path]:
    """Where a module of that name would be."""
    own = directory.joinpath(*name.split("."))
    return own.with_suffix(".py"), own / "__init__.py"


def _send_with_queries(module: ModuleType, directory: Path) -> None:
    """Let Spark's workers, which do not see the directory, get the module's functions with the queries.

    What the module has taken from others beside it goes along.
    """
    from pyspark import cloudpickle

    file = getattr(module, "__file__", None)
    if file is not None and Path(file).resolve().is_relative_to(directory.resolve()):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    for name, other in list(sys.modules.items()):
        if name.partition(".")[0] in OWN_PACKAGES:
            continue
        file = getattr(other, "__file__", None)
        if isinstance(file, str) and file.startswith(str(directory)) and Path(file) in _files_of(name, directory):
            cloudpickle.register_pickle_by_value(other)  # type: ignore[no-untyped-call]


def _is_frame(value: object) -> bool:
    # Frames of Spark Connect are of another class, and only there when its packages are. The class is asked: a frame
    # that is no stream refuses to say that it has a `writeStream`.
    return hasattr(type(value), "writeStream") and hasattr(type(value), "createOrReplaceTempView")


def _told(error: Exception, step: PythonStep, directory: Path) -> str:
    """An error in one line, with the last line of the author's own code on the way to it."""
    said = message_of(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename).name}:{error.lineno})"
    module = sys.modules.get(step.function.partition(":")[0])
    own = getattr(module, "__file__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if frame.filename == own or _is_beside(Path(frame.filename), directory)]
    where = f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""
    return f"{type(error).__name__}: {said}{where}"


def _is_beside(file: Path, directory: Path) -> bool:
    """Whether the file is of who wrote the pipeline: packages may be installed below the same directory."""
    return file.is_relative_to(directory) and "site-packages" not in file.parts


def _invalid(step: PythonStep, what: str, fix: str) -> PipelineInvalid:
    return PipelineInvalid([Problem(step.place, f"step `{step.name}`: {what}", fix)])
