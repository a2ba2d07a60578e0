"""Errors of the server become our errors with a hint."""

from __future__ import annotations

import pytest

from cdc_consumer import errors
from cdc_consumer.wal.diagnosis import diagnose_postgres
from shared_schema.connections import pinned_conninfo


@pytest.mark.parametrize(
    ("sqlstate", "message", "error", "retryable"),
    [
        ("", "server closed the connection unexpectedly", errors.ConnectionLost, True),
        ("42501", "permission denied for table t", errors.MissingRights, False),
        ("53400", "all replication slots are in use", errors.NoFreeSlot, False),
        ("55006", "replication slot is active for PID 1", errors.SlotActive, True),
        ("55000", "logical decoding requires wal_level >= logical", errors.WrongWalLevel, False),
        ("55000", 'can no longer access replication slot "s"', errors.SlotLost, False),
        ("42704", 'publication "p" does not exist', errors.PublicationMissing, False),
        ("42704", 'replication slot "s" does not exist', errors.SlotLost, False),
        ("58P01", "requested WAL segment has already been removed", errors.SlotLost, False),
        ("57P01", "terminating connection due to administrator command", errors.ConnectionLost, True),
        ("57P05", "terminating connection due to idle-session timeout", errors.ConnectionLost, True),
        ("25P03", "terminating connection due to idle-in-transaction timeout", errors.ConnectionLost, True),
        ("25P04", "terminating connection due to transaction timeout", errors.ConnectionLost, True),
        ("53200", "out of memory", errors.ServerOutOfMemory, True),
        ("54000", "out of memory: cannot enlarge string buffer", errors.SourceError, False),
        ("55P03", "canceling statement due to lock timeout", errors.CaptureFailed, True),
        ("42703", 'column "v" does not exist', errors.CaptureFailed, True),
        ("XX000", "could not open relation with OID 1", errors.CaptureFailed, True),
        ("XX000", "something new", errors.SourceError, False),
    ],
)
def test_diagnosis(sqlstate: str, message: str, error: type[errors.SourceError], retryable: bool) -> None:
    found = diagnose_postgres(sqlstate, message)
    assert type(found) is error
    assert found.hint
    assert found.retryable is retryable
    assert message in found.problem


def test_the_users_own_options_are_kept_and_ours_win() -> None:
    url = "host=h options='-c work_mem=1MB -c datestyle=German'"
    conninfo = pinned_conninfo(url, application_name="test", replication=True)
    assert "replication=database" in conninfo
    assert conninfo.index("work_mem") < conninfo.index("datestyle=ISO")
