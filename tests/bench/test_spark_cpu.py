"""The account of what Spark's processes compute, held against process trees made up for it."""

from __future__ import annotations

import os

from bench.spark_cpu import Meter, Usage, parse, spent_ticks, tree

JVM, DAEMON, WORKER, RUNNER, STRANGER = 10, 20, 30, 40, 50


def test_a_line_of_the_kernel_is_read_although_the_name_holds_brackets_and_blanks() -> None:
    fields = ["S", "7", *["0"] * 9, "100", "20", "3", "4", *["0"] * 4, "999", "0"]

    assert parse(f"42 (a (b) c) {' '.join(fields)}\n") == Usage(parent=7, started=999, ticks=127, kernel_ticks=24)


def test_the_tree_of_a_process_holds_what_it_started_and_what_that_started() -> None:
    usages = {JVM: Usage(1, 0, 1), DAEMON: Usage(JVM, 0, 1), WORKER: Usage(DAEMON, 0, 1), STRANGER: Usage(1, 0, 1)}

    assert set(tree(JVM, usages)) == {JVM, DAEMON, WORKER}


def test_the_tree_of_a_process_that_has_ended_is_empty() -> None:
    assert tree(JVM, {STRANGER: Usage(1, 0, 1)}) == {}


def test_a_process_that_began_meanwhile_counts_whole() -> None:
    before = {JVM: Usage(1, 0, 100)}

    assert spent_ticks(JVM, before, {JVM: Usage(1, 0, 110), WORKER: Usage(JVM, 5, 7)}) == 17


def test_a_worker_that_its_daemon_let_go_takes_nothing_off_what_the_others_computed() -> None:
    before = {JVM: Usage(1, 0, 100), DAEMON: Usage(JVM, 1, 5), WORKER: Usage(DAEMON, 2, 50)}

    assert spent_ticks(JVM, before, {JVM: Usage(1, 0, 130), DAEMON: Usage(JVM, 1, 5)}) == 30


def test_what_an_ended_child_computed_before_is_not_counted_again_in_the_account_of_its_parent() -> None:
    before = {JVM: Usage(1, 0, 100), RUNNER: Usage(JVM, 1, 60)}

    assert spent_ticks(JVM, before, {JVM: Usage(1, 0, 100 + 60 + 4)}) == 4


def test_a_process_that_got_the_number_of_an_ended_one_counts_whole() -> None:
    before = {JVM: Usage(1, 0, 100), DAEMON: Usage(JVM, 1, 5), WORKER: Usage(DAEMON, 2, 50)}
    after = {JVM: Usage(1, 0, 100), DAEMON: Usage(JVM, 1, 5), WORKER: Usage(DAEMON, 9, 3)}

    assert spent_ticks(JVM, before, after) == 3


def test_a_meter_sees_what_this_very_process_computes() -> None:
    meter = Meter(os.getpid())
    begun_s = sum(os.times()[:2])

    while sum(os.times()[:2]) - begun_s < 0.1:
        pass

    assert meter.seconds() >= 0.08
    spent = meter.spent()
    assert 0 <= spent.kernel_seconds <= spent.seconds
