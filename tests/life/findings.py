"""What was found to break when production lives -> the tests that prove that it does not any more.

A: silently wrong. B: one row, query or table took everybody down. C: doors that were open. D: what grows, and what a
restart costs. A line whose proof is no test of `make test` says where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

_LIFE = "tests/life"


@dataclass(frozen=True)
class Finding:
    """What happened, and the tests, as `file::function`; or, without tests, where it is measured or why it is open."""

    what: str
    tests: tuple[str, ...] = ()
    without: str = ""


FINDINGS = {
    "A1": Finding("DETACH PARTITION left its rows behind", (f"{_LIFE}/test_partitions.py::test_leaves_come_and_go",)),
    "A2": Finding(
        "ATTACH PARTITION of a filled table brought no rows",
        (
            f"{_LIFE}/test_partitions.py::test_leaves_come_and_go",
            f"{_LIFE}/test_partitions.py::test_what_nobody_announced_is_found",
        ),
    ),
    "A3": Finding(
        "TRUNCATE or DROP of one leaf removed nothing", (f"{_LIFE}/test_partitions.py::test_leaves_come_and_go",)
    ),
    "A4": Finding(
        "the old row of a leaf was judged by the replica identity of its root",
        (
            f"{_LIFE}/test_partitions.py::test_a_later_leaf_with_another_identity",
            "tests/cdc_consumer/test_partitions.py::test_an_old_row_is_judged_by_the_identity_of_its_leaf",
        ),
    ),
    "A5": Finding(
        "a column was rewritten under the same type",
        (f"{_LIFE}/test_ddl.py::test_rows_that_are_rewritten_without_being_in_the_log",),
    ),
    "A6": Finding(
        "a column was dropped, and another one has its name",
        (f"{_LIFE}/test_ddl.py::test_a_column_dropped_and_added_again",),
    ),
    "A7": Finding("two columns changed their names", (f"{_LIFE}/test_ddl.py::test_names_are_followed",)),
    "A8": Finding(
        "a view below a stream table was replaced", (f"{_LIFE}/test_ddl.py::test_a_replaced_view_and_function",)
    ),
    "A9": Finding(
        "a table had another name for a moment", (f"{_LIFE}/test_ddl.py::test_a_table_has_another_name_for_a_moment",)
    ),
    "A10": Finding(
        "a publication lost a table or an action",
        (
            f"{_LIFE}/test_publications.py::test_a_source_that_leaves_the_publication",
            f"{_LIFE}/test_publications.py::test_a_publication_of_some_actions",
        ),
    ),
    "A11": Finding(
        "a source was published with a row filter or a column list",
        (
            f"{_LIFE}/test_publications.py::test_a_source_that_is_published_in_part_is_refused",
            f"{_LIFE}/test_publications.py::test_a_filter_or_list_that_comes_later",
        ),
    ),
    "A12": Finding("a label of an enum was renamed", (f"{_LIFE}/test_ddl.py::test_labels_of_an_enum",)),
    "A13": Finding(
        "NOT NULL … NOT VALID was taken for never NULL", (f"{_LIFE}/test_ddl.py::test_not_null_that_is_not_validated",)
    ),
    "A14": Finding(
        "-0.0 stayed behind as a phantom row", (f"{_LIFE}/test_values.py::test_zeros_of_both_signs_leave_as_they_came",)
    ),
    "A15": Finding(
        "a column got a collation with another order",
        (
            f"{_LIFE}/test_ddl.py::test_types_and_collations",
            "tests/applier/refresh/test_vouch.py::test_a_collation_with_another_order",
        ),
    ),
    "A16": Finding(
        "a Delta commit that raised after it was made was repeated",
        (
            "tests/applier/sinks/delta_lake/test_sink.py::test_a_commit_that_raised_is_not_repeated",
            "tests/applier/sinks/delta_lake/test_sink.py::test_a_delta_that_is_in_the_log_is_not_written_again",
        ),
    ),
    "A17": Finding(
        "styles of the database reached Delta and the topic",
        (f"{_LIFE}/test_values.py::test_styles_of_the_database_reach_no_sink",),
    ),
    "A18": Finding(
        "freshness was the applier's own clock",
        (
            f"{_LIFE}/test_freshness.py::test_idle_sources_are_fresh_and_the_data_timestamp_is_the_commit_time",
            f"{_LIFE}/test_freshness.py::test_a_hung_consumer",
            f"{_LIFE}/test_freshness.py::test_a_hung_broker",
            f"{_LIFE}/test_freshness.py::test_a_hung_applier",
            f"{_LIFE}/test_freshness.py::test_a_hung_database",
            f"{_LIFE}/test_freshness.py::test_both_programs_are_dead",
        ),
    ),
    "A19": Finding(
        "the whole at a position before the base was taken from the newer base",
        ("tests/applier/trace/test_trace.py::test_nothing_before_the_base_can_be_read",),
    ),
    "A20": Finding(
        "SET EXPRESSION, SET SCHEMA and back, partitions of partitions, DETACH CONCURRENTLY, detached for a moment",
        (
            f"{_LIFE}/test_ddl.py::test_rows_that_are_rewritten_without_being_in_the_log",
            f"{_LIFE}/test_ddl.py::test_a_table_has_another_name_for_a_moment",
            f"{_LIFE}/test_partitions.py::test_leaves_come_and_go",
            "tests/cdc_consumer/test_partitions.py::test_detached_while_the_table_is_used",
            "tests/cdc_consumer/snapshot/test_captured_tables.py::"
            "test_a_leaf_that_left_and_joined_again_between_two_looks",
        ),
    ),
    "B1": Finding(
        "paused over a restart, and passed by a checkpoint",
        (
            f"{_LIFE}/test_containment.py::test_paused_over_a_restart_and_passed_by_a_checkpoint",
            "tests/applier/runtime/test_contained.py::test_resumed_behind_the_base",
        ),
    ),
    "B2": Finding(
        "DELETE of a partitioned table without a key", (f"{_LIFE}/test_partitions.py::test_a_root_without_a_key",)
    ),
    "B3": Finding("a sum of more than 38 digits", (f"{_LIFE}/test_values.py::test_sums_of_more_than_38_digits",)),
    "B4": Finding(
        "a query that is large in form took all memory",
        (
            f"{_LIFE}/test_containment.py::test_queries_that_are_large_in_form_or_have_no_order",
            f"{_LIFE}/test_containment.py::test_a_fill_that_ends_the_applier_each_time",
            "tests/applier/runtime/test_contained.py::test_a_query_whose_planning_ended_the_process",
            "tests/applier/runtime/test_contained.py::test_a_small_refresh_that_ends_the_process",
        ),
    ),
    "B5": Finding(
        "row_number() OVER () failed on the data",
        (f"{_LIFE}/test_containment.py::test_queries_that_are_large_in_form_or_have_no_order",),
    ),
    "B6": Finding(
        "an error that nobody expected ended all stream tables",
        (
            "tests/applier/runtime/test_contained.py::test_an_unexpected_error_of_one_computation",
            "tests/applier/runtime/test_contained.py::test_an_unexpected_error_of_one_write",
            "tests/applier/runtime/test_contained.py::test_an_unexpected_error_of_one_plan",
            "tests/applier/runtime/test_contained.py::test_an_unexpected_error_of_one_delta_table",
            "tests/applier/runtime/test_requests.py::test_the_thread_survives_whatever_a_question_raises",
            "tests/applier/refresh/test_long_refreshes.py::test_one_that_raises_does_not_take_the_others_along",
        ),
    ),
    "B7": Finding(
        "keys that are equal and look different",
        (f"{_LIFE}/test_values.py::test_keys_that_are_equal_and_look_different",),
    ),
    "B8": Finding(
        "a start could not read a long progress topic",
        (
            "tests/shared_schema/test_progress_topic.py::test_both_programs_start_fast_on_a_long_topic",
            "tests/cdc_consumer/test_long_progress.py::test_the_consumer_is_ready_soon_on_a_long_topic",
        ),
    ),
    "B9": Finding(
        "a new table never joined under load",
        (f"{_LIFE}/test_capture.py::test_a_new_table_joins_while_every_write_transaction_is_old",),
    ),
    "B10": Finding(
        "a long second copy stopped the stream for good",
        (
            "tests/cdc_consumer/snapshot/test_joining.py::test_a_second_copy_runs_beside_the_stream_and_is_seen_whole",
            "tests/cdc_consumer/snapshot/test_joining.py::test_killed_while_the_stream_goes_on",
        ),
    ),
    "B11": Finding(
        "publishing a large fill stopped everybody",
        (
            f"{_LIFE}/test_publishing.py::test_a_large_fill_is_published_beside_the_ticks",
            "tests/applier/sinks/kafka/test_publisher.py::test_ticks_do_not_wait_for_a_broker",
        ),
    ),
    "B12": Finding(
        "large values killed the driver",
        (
            f"{_LIFE}/test_large_values.py::test_a_commit_larger_than_what_the_driver_takes_at_once",
            f"{_LIFE}/test_large_values.py::test_twenty_thousand_values_through_a_small_driver",
        ),
    ),
    "B13": Finding(
        "all others waited for a large merge",
        (
            f"{_LIFE}/test_containment.py::test_a_write_that_takes_long",
            "tests/applier/runtime/test_long_writes.py::test_the_others_stay_fresh",
        ),
    ),
    "C1": Finding(
        "a message in the log made the applier run a function of its author",
        (f"{_LIFE}/test_doors.py::test_a_message_of_a_stranger_makes_the_applier_run_nothing",),
    ),
    "C2": Finding(
        "sessions did not pin their search path",
        (
            "tests/shared_schema/test_session_pins.py::test_a_session_has_the_pins",
            "tests/security/test_search_path.py::test_writes_use_the_operators_of_postgresql_alone",
        ),
    ),
    "C3": Finding(
        "rows of the catalog, advisory locks, Spark's ports and values in logs",
        (
            f"{_LIFE}/test_doors.py::test_a_row_of_the_catalog_does_not_read_what_its_owner_may_not",
            f"{_LIFE}/test_doors.py::test_no_value_of_a_row_is_in_a_log",
            "tests/applier/runtime/test_lock.py::test_a_stranger_does_not_keep_the_applier_out",
            "tests/applier/spark/test_session.py::test_a_cluster_without_a_secret_is_refused",
        ),
    ),
    "C4": Finding(
        "a query that PostgreSQL ran could RESET ROLE",
        ("tests/security/test_confined.py::test_a_query_that_postgresql_runs_stays_its_owners",),
    ),
    "D1": Finding(
        "a start loaded traces that nobody reads",
        (
            "tests/applier/trace/test_trace.py::"
            "test_what_nobody_reads_stays_on_disk_through_restarts_checkpoints_and_crashes",
            "tests/applier/runtime/test_preload.py::"
            "test_what_is_read_is_loaded_small_ones_first_and_an_error_concerns_one",
        ),
    ),
    "D2": Finding("fresh again minutes after a kill", without="measured: tests/benchmarks/bench_restart.py"),
    "D3": Finding("traces of dropped sources stayed for ever", without="open: no test of its own"),
    "D4": Finding("every column is captured, read or not", without="open: every column is captured"),
    "D5": Finding(
        "history, control topic and progress records grew without bound",
        (
            "tests/applier/catalog/test_history.py::test_old_rows_and_too_many_rows_are_deleted",
            "tests/cdc_consumer/sinks/test_topics.py::test_the_settings_of_the_contract",
            "tests/cdc_consumer/test_progress_records.py::test_records_of_many_tables_are_small_and_exact",
        ),
    ),
    "D6": Finding("memory that grows slowly passed the soak", without="measured: make soak"),
}
