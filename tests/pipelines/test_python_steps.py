"""Functions of steps are found beside the pipeline's file, travel to workers, and tell where they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
import pytest

from ottla.pipelines.errors import PipelineInvalid
from ottla.pipelines.python_steps import called, loaded
from ottla.pipelines.spec import Place, PythonStep


class Frame:
    """What is asked of a frame here: Spark's own, where it is no stream, refuses to show its `writeStream`."""

    @property
    def writeStream(self) -> None:  # noqa: N802
        raise ValueError("this is no stream")

    def createOrReplaceTempView(self) -> None:  # noqa: N802
        """Spark's frames have it."""


FRAME: Any = Frame()
cloudpickle: Any = pyspark.cloudpickle


def step(function: str) -> PythonStep:
    return PythonStep(name="s", place=Place("p.yaml", 3), function=function, inputs=("a",))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Modules and paths that loading adds are taken away again."""
    paths = list(sys.path)
    yield tmp_path.resolve()
    sys.path[:] = paths
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            if name in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(module)
            del sys.modules[name]


def write(directory: Path, name: str, text: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text)
    return directory


def said(function: str, directory: Path, *frames: Any) -> str:
    with pytest.raises(PipelineInvalid) as caught:
        called(step(function), frames, directory=directory)
    return str(caught.value)


def test_a_frame_that_is_no_stream_is_a_frame(directory: Path) -> None:
    write(directory, "steps_plain.py", "def same(a):\n    return a\n")

    assert called(step("steps_plain:same"), [FRAME], directory=directory) is FRAME


def test_each_pipeline_has_the_module_beside_it_however_often_they_take_turns(directory: Path) -> None:
    first = write(directory / "one", "steps_turns.py", "def who():\n    return 1\n")
    second = write(directory / "two", "steps_turns.py", "def who():\n    return 2\n")

    found = [loaded(step("steps_turns:who"), directory=each)() for each in (first, second, first, second)]

    assert found == [1, 2, 1, 2]


def test_a_package_beside_a_pipeline_is_its_own_as_well(directory: Path) -> None:
    found = []
    for number in (1, 2, 1):
        package = directory / str(number) / "steps_package"
        package.mkdir(parents=True, exist_ok=True)
        write(package, "__init__.py", "")
        write(package, "inner.py", f"def who():\n    return {number}\n")
        found.append(loaded(step("steps_package.inner:who"), directory=directory / str(number))())

    assert found == [1, 2, 1]


def test_modules_that_a_step_takes_from_beside_it_travel_with_it(directory: Path) -> None:
    write(directory, "steps_prices.py", "def price():\n    return 5\n")
    write(directory, "steps_shop.py", "import json\nimport steps_prices\n\ndef shop(a):\n    return a\n")

    loaded(step("steps_shop:shop"), directory=directory)

    registered = cloudpickle.list_registry_pickle_by_value()
    assert {"steps_shop", "steps_prices"} <= set(registered)
    assert "json" not in registered


def test_a_failure_is_told_with_the_line_of_the_function_and_not_of_what_it_called(directory: Path) -> None:
    write(directory, "steps_failing.py", "import json\n\ndef fail(a):\n    return json.loads('{')\n")

    assert said("steps_failing:fail", directory, FRAME).endswith("(steps_failing.py:4). Correct the function.")


def test_a_module_that_is_no_python_is_told_with_its_line(directory: Path) -> None:
    write(directory, "steps_unfinished.py", "x = 1\ndef fail(a:\n")

    assert "SyntaxError: '(' was never closed (steps_unfinished.py:2)" in said("steps_unfinished:fail", directory)


def test_a_function_that_takes_other_frames_is_told_how_it_should_look(directory: Path) -> None:
    write(directory, "steps_two.py", "def two(a, b):\n    return a\n")

    assert said("steps_two:two", directory, FRAME) == (
        "p.yaml:3: step `s`: steps_two:two cannot take what `from` has: missing a required argument: 'b'. "
        "Write it as `def two(frame): return frame`, one argument for each of `from`."
    )
