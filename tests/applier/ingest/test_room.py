"""The reader of the topics waits while a tick has not taken what it read, and says for how long."""

from __future__ import annotations

import threading
import time

from applier.ingest.inbox import Inbox
from applier.ingest.ingest import WAITING_PIECES, Ingest
from applier.settings import ApplierSettings
from tests.applier.ingest.test_inbox import PROGRESS, arrival, at, progress


def test_the_reader_says_for_how_long_no_tick_took_what_it_read() -> None:
    inbox, lock = Inbox(), threading.Condition()
    settings = ApplierSettings.model_validate({"database_url": "postgresql://nowhere/x"})
    ingest = Ingest(NotImplemented, settings, inbox, lock, NotImplemented)
    inbox.add_row(at("a"), 0, arrival("a", 5, 0))
    inbox.add_record(PROGRESS, 0, progress(10, a=1))
    ingest._wait_for_room()
    assert ingest.waits_s == 0
    inbox.count_bytes(WAITING_PIECES * settings.bytes_per_trigger + 1)
    reader = threading.Thread(target=ingest._wait_for_room)
    reader.start()
    while ingest.waits_s < 0.05:
        time.sleep(0.01)
    with lock:
        inbox.take(inbox.frontier)
        lock.notify_all()
    reader.join()
    assert ingest.waits_s == 0
