"""The states of all stream tables in, what the manifest of a checkpoint says of them out.

In the order of a checkpoint: `take` between two ticks, `write` beside the ticks, then the manifest, then `settle`. A
crash in between leaves files that no manifest names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from applier.plan.stream_table import StreamTable
from applier.spark.session import stand_back
from applier.state.store import ExportedState, StateStore
from applier.state.stored import StoredFile, StoredState
from shared_schema.errors import TrickleError
from shared_schema.lsn import Lsn

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TakenStates:
    """The states at one moment; `close` after they are written."""

    states: Mapping[int, ExportedState | StoredState]
    existing: frozenset[int]
    """All stream tables that there are."""

    def close(self) -> None:
        """Hold nothing any longer."""
        for state in self.states.values():
            if isinstance(state, ExportedState):
                state.close()


@dataclass(frozen=True)
class DurableStates:
    """Stores the states of one StateStore."""

    store: StateStore

    def take(self, frontiers: Sequence[tuple[int, StreamTable | None, Lsn]]) -> TakenStates:
        """Take the state of each stream table in service at its frontier."""
        taken: dict[int, ExportedState | StoredState] = {}
        if self.store.files is not None:
            for table_id, table, at in frontiers:
                try:
                    if table is not None and at and (state := self.store.export(table, at)) is not None:
                        taken[table_id] = state
                except Exception as error:
                    _warn(table_id, error)
        return TakenStates(taken, frozenset(table_id for table_id, _, _ in frontiers))

    def write(self, taken: TakenStates, before: Mapping[str, Any], since: Lsn) -> dict[str, Any]:
        """Write the states; return what a manifest at `since` says of them.

        What could not be taken now stays as the manifest `before` has it, unless that is older than the traces will be.
        """
        if (files := self.store.files) is None:
            return {}
        stand_back(self.store.spark)
        written = {key: form for key, form in before.items() if _is_usable(key, form, taken.existing, since)}
        for table_id, state in taken.states.items():
            if state.frontier < since:
                continue
            try:
                stored = state.write(files) if isinstance(state, ExportedState) else state
                written[str(table_id)] = stored.to_json()
            except Exception as error:
                _warn(table_id, error)
        return written

    def settle(self, states: Mapping[str, Any]) -> None:
        """Delete the files that the stored manifest does not name."""
        if (files := self.store.files) is not None:
            try:
                files.delete_others(_named(states.values()))
            except OSError as error:
                log.warning("files of states could not be deleted", extra={"error": type(error).__name__})


def _warn(table_id: int, error: Exception) -> None:
    """Log that a state is not stored: it is computed again after a start; the rows of the traces matter more."""
    log.warning("state could not be stored", extra={"stream_table": table_id, "error": type(error).__name__})


def _is_usable(key: str, form: Any, existing: frozenset[int], since: Lsn) -> bool:
    try:
        return int(key) in existing and StoredState.from_json(form).frontier >= since
    except (AttributeError, KeyError, TypeError, ValueError, TrickleError):
        return False


def _named(forms: Iterable[Any]) -> Iterator[StoredFile]:
    for form in forms:
        yield from StoredState.from_json(form).files()
