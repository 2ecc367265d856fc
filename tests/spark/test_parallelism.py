"""How many tasks Spark can run at once, as far as a worker can see it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.spark.parallelism import TASKS_VARIABLE, slots, task_count

DAEMON = ["python", "-m", "pyspark.daemon", ""]


def seen(*settings: str, environment: dict[str, str] | None = None) -> int | None:
    """What is seen where a Spark with this command line started the daemon that started the worker."""

    def lines() -> Iterator[list[str]]:
        yield DAEMON
        yield ["java", "-cp", "jars/*", "org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell", ""]

    return slots(environment or {}, lines, cores=8)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["--conf", "spark.master=local[2]"], 2),
        (["--conf", "spark.master=local[3,4]"], 3),
        (["--conf", "spark.master=local[*]"], 8),
        (["--conf", "spark.master=local"], 1),
        (["--master", "local[5]"], 5),
        (["-Dspark.master=local[6]"], 6),
        (["--conf", "spark.master=local-cluster[2, 3, 1024]"], 6),
        (["--master", "spark://host:7077", "--conf", "spark.cores.max=40"], 40),
        (["--master", "yarn", "--conf", "spark.executor.instances=5", "--conf", "spark.executor.cores=4"], 20),
        (["--master", "yarn", "--conf", "spark.default.parallelism=64"], 64),
    ],
)
def test_the_command_line_of_spark_tells_how_many_tasks_run_at_once(settings: list[str], expected: int) -> None:
    assert seen(*settings) == expected


@pytest.mark.parametrize("settings", [[], ["--master", "yarn"], ["--master", "k8s://https://host"]])
def test_a_cluster_of_unknown_size_stays_unknown(settings: list[str]) -> None:
    assert seen(*settings) is None


def test_the_environment_counts_for_more_than_the_command_line() -> None:
    assert seen("--conf", "spark.master=local[2]", environment={TASKS_VARIABLE: "12"}) == 12


@pytest.mark.parametrize("told", ["", "0", "many"])
def test_what_is_no_number_in_the_environment_is_passed_over(told: str) -> None:
    assert seen("--conf", "spark.master=local[2]", environment={TASKS_VARIABLE: told}) == 2


def test_what_the_user_asks_for_holds() -> None:
    assert task_count(asked=7, range_count=3) == 7


def test_where_nothing_is_known_each_range_is_worth_a_task() -> None:
    # No Spark has started this process.
    assert task_count(asked=None, range_count=64) == 64
