"""Settings in the database: the same bounds as elsewhere, each with its source; the nearest source wins."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import errors, sql

from applier.catalog.database import Database
from applier.catalog.install import install_catalog
from applier.runtime.live_settings import LiveSettings, read_stored
from applier.settings import ApplierSettings
from cdc_consumer.settings import ConsumerSettings
from cdc_consumer.wal.catalog import stored_settings
from shared_schema.errors import SettingsError
from shared_schema.settings import SharedSettings, load_settings
from shared_schema.stored_settings import describe_settings, merge_settings

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def db(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        install_catalog(connection)
        yield connection


def shown(db: Connection, name: str) -> tuple[object, ...] | None:
    return db.execute(
        "SELECT value, source, default_value, min_value::int, max_value::int FROM pgtrickle.settings() WHERE name = %s",
        (name,),
    ).fetchone()


def test_a_setting_is_taken_from_the_nearest_place(
    db: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(db, "pipeline_batch_size") == ("4096", "default", "4096", 1, 1_000_000)
    name = sql.Identifier(db.info.dbname)
    db.execute(sql.SQL("ALTER DATABASE {} SET pg_trickle.pipeline_batch_size = 7").format(name))
    db.execute(sql.SQL("ALTER DATABASE {} SET pg_trickle.linger_ms = '9'").format(name))
    assert shown(db, "pipeline_batch_size") == ("7", "database", "4096", 1, 1_000_000)
    db.execute("SELECT pgtrickle.set_setting('pg_trickle.Pipeline_Batch_Size', ' 512 ')")
    assert shown(db, "pipeline_batch_size") == ("512", "setting", "4096", 1, 1_000_000)
    assert LiveSettings({"database_url": database}).settings.pipeline_batch_size == 512
    assert (
        merge_settings(ConsumerSettings, {"database_url": database}, stored_settings(database)).settings.linger_ms == 9
    )
    monkeypatch.setenv("PG_TRICKLE_PIPELINE_BATCH_SIZE", "99")
    tuned = LiveSettings({"database_url": database})
    assert tuned.settings.pipeline_batch_size == 99
    assert ("pipeline_batch_size", "99", "environment") in tuned._loaded.in_use()
    assert LiveSettings({"database_url": database, "pipeline_batch_size": "3"}).settings.pipeline_batch_size == 3
    monkeypatch.delenv("PG_TRICKLE_PIPELINE_BATCH_SIZE")
    db.execute("SELECT pgtrickle.reset_setting('pipeline_batch_size')")
    assert LiveSettings({"database_url": database}).settings.pipeline_batch_size == 7
    # PostgreSQL does not know the bounds of settings that it stores for a program; the program does.
    db.execute(sql.SQL("ALTER DATABASE {} SET pg_trickle.pipeline_batch_size = 'lots'").format(name))
    with pytest.raises(SettingsError, match=r"pipeline_batch_size.*in the database"):
        LiveSettings({"database_url": database})


def test_what_is_in_effect_is_not_pending(db: Connection, database: str) -> None:
    def pending() -> list[str]:
        return [str(row[0]) for row in db.execute("SELECT name FROM pgtrickle.settings() WHERE pending_restart")]

    name = sql.Identifier(db.info.dbname)
    for setting in ("publish_sink = 'Off'", "staging_rows = '0500'", "prediction_ratio = '02.50'"):
        db.execute(sql.SQL("ALTER DATABASE {} SET pg_trickle.").format(name) + sql.SQL(setting))
    own = Database(database)
    LiveSettings({"database_url": database}).report(own)
    own.close()
    db.execute("SELECT pg_advisory_lock(1885828208, 0)")  # as an applier that runs
    assert db.execute("SELECT value FROM pgtrickle.settings() WHERE name = 'staging_rows'").fetchone() == ("500",)
    assert pending() == []
    # One that needs no restart is not pending either.
    db.execute("SELECT pgtrickle.set_setting('staging_rows', '501'), pgtrickle.set_setting('prediction_ratio', '3')")
    db.execute(sql.SQL("ALTER DATABASE {} RESET pg_trickle.publish_sink").format(name))
    assert pending() == ["publish_sink", "staging_rows"]


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        ("pipeline_batch_size", "0", "between 1 and 1000000"),
        ("pipeline_batch_size", "1000001", "between 1 and 1000000"),
        ("pipeline_batch_size", "ten", "whole number"),
        ("pipeline_batch_size", "99999999999999999999", "whole number"),
        ("pipeline_batch_size", None, "reset_setting"),
        ("publish_sink", "maybe", "true or false"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("topic_retention_ms", "-2", "at least -1"),
    ],
)
def test_out_of_bounds_names_the_bounds(db: Connection, name: str, value: str | None, bounds: str) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        db.execute("SELECT pgtrickle.set_setting(%s, %s)", (name, value))
    assert bounds in str(caught.value.diag.message_hint)
    if value is not None:
        with pytest.raises(SettingsError):
            cls = ApplierSettings if name in ApplierSettings.model_fields else ConsumerSettings
            load_settings(cls, database_url="x", **{name: value})


@pytest.mark.parametrize("name", ["nothing", "x'; DROP SCHEMA pgtrickle CASCADE; --", "database_url", "kafka_options"])
def test_what_is_no_setting_of_the_database(db: Connection, name: str) -> None:
    for call in ("set_setting(%s, '1')", "reset_setting(%s)"):
        with pytest.raises(errors.UndefinedObject):
            db.execute(f"SELECT pgtrickle.{call}".encode(), (name,))
    with pytest.raises(errors.CantChangeRuntimeParam, match="state_dir"):
        db.execute("SELECT pgtrickle.set_setting('state_dir', '/tmp')")


@pytest.mark.parametrize("cls", [ApplierSettings, ConsumerSettings])
def test_a_critical_lag_below_that_of_the_warning_is_refused(
    db: Connection, cls: type[SharedSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "slot_lag_{}_threshold_mb"
    less = r"slot_lag_critical_threshold_mb \({}\) is less than slot_lag_warning_threshold_mb \({}\)"
    for level, value, said in (("critical", "99", (99, 100)), ("warning", "1025", (1024, 1025))):
        with pytest.raises(errors.InvalidParameterValue, match=less.format(*said)):
            db.execute("SELECT pgtrickle.set_setting(%s, %s)", (name.format(level), value))
        with pytest.raises(SettingsError, match=less.format(*said)) as refused:
            load_settings(cls, database_url="x", **{name.format(level): value})
        assert "\n" not in refused.value.problem and refused.value.hint
    assert read_stored(db) == {}
    db.execute("SELECT pgtrickle.set_setting(%s, '50')", (name.format("warning"),))
    db.execute("SELECT pgtrickle.set_setting(%s, '50')", (name.format("critical"),))
    with pytest.raises(errors.InvalidParameterValue, match=less.format(50, 100)):
        db.execute("SELECT pgtrickle.reset_setting(%s)", (name.format("warning"),))
    assert {value for value, _ in read_stored(db).values()} == {"50"}
    # One of them where the program is started, the other one in the database.
    monkeypatch.setenv("PG_TRICKLE_SLOT_LAG_WARNING_THRESHOLD_MB", "60")
    with pytest.raises(SettingsError, match=less.format(50, 60) + ", in the database"):
        merge_settings(cls, {"database_url": "x"}, read_stored(db))


def test_a_setting_is_part_of_its_transaction(db: Connection) -> None:
    with db.transaction(force_rollback=True):
        db.execute("SELECT pgtrickle.set_setting('publish_sink', 'off')")
        assert shown(db, "publish_sink") == ("false", "setting", "true", None, None)
    assert read_stored(db) == {}


def test_every_default_is_one_its_own_bounds_allow(db: Connection) -> None:
    for described in [*describe_settings(ApplierSettings, "a"), *describe_settings(ConsumerSettings, "c")]:
        if (
            described.settable
            and described.default_value
            and described.name not in ("metrics_port", "replication_factor")
        ):
            db.execute("SELECT pgtrickle.set_setting(%s, %s)", (described.name, described.default_value))
    stored = read_stored(db)
    for cls in (ApplierSettings, ConsumerSettings):
        plain = load_settings(cls, database_url="x")
        assert merge_settings(cls, {"database_url": "x"}, stored).settings == plain
