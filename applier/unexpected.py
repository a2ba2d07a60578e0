"""Any exception that was raised for one stream table or source in; an error of the applier, without row values, out.

Messages of libraries may name values: Arrow quotes what it could not convert. So only the class of the exception and
the place in this program are shown, and the stack is logged without messages.
"""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import psycopg
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from applier.errors import Infrastructure, UnexpectedFailure
from shared_schema.errors import TrickleError

log = logging.getLogger(__name__)

OWN_CODE = Path(__file__).parent

_SERVICE_STATES = ("08", "57P", "58", "53300", "53200")
"""SQLSTATEs, or their beginnings, of a server that is not available: no stream table causes them."""

MAX_CAUSES = 5
"""Most causes whose stacks are logged."""

_STOPPED_SPARK = "stopped SparkContext"


def to_trickle_error(subject: object, error: BaseException) -> TrickleError:
    """Return the error itself if it is expected; Infrastructure if a service is away; else UnexpectedFailure."""
    match error:
        case TrickleError():
            return error
        case Py4JNetworkError():
            return Infrastructure("the Spark driver has stopped")
        case Py4JJavaError() if _STOPPED_SPARK in str(error.java_exception):
            return Infrastructure("the Spark session has stopped")
        case psycopg.Error() if is_service_away(error):
            return Infrastructure(f"PostgreSQL is not available: {type(error).__name__} {error.sqlstate or ''}".strip())
    log.error(
        "unexpected error",
        extra={"subject": str(subject), "error": type(error).__name__, "stack": _describe_stack(error)},
    )
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    state = f" {error.sqlstate}" if isinstance(error, psycopg.Error) and error.sqlstate else ""
    return UnexpectedFailure(
        f"{subject} failed unexpectedly: {kind}{state}{_describe_place(error)}",
        hint="the others go on; the applier's log has the stack. SELECT pgtrickle.resume_stream_table(…) tries again",
    )


def to_own_error(subject: object, error: Exception) -> TrickleError:
    """Return the error as one of this subject alone; raise Infrastructure where a service is away."""
    found = to_trickle_error(subject, error)
    if not found.retryable:
        return found
    if found is error:
        raise error
    raise found from error


def is_service_away(error: psycopg.Error) -> bool:
    """Whether the server is not available; many other errors of one statement are OperationalErrors too."""
    if not error.sqlstate:
        return isinstance(error, psycopg.OperationalError)
    return is_away_state(error.sqlstate)


def is_away_state(sqlstate: str) -> bool:
    """Whether a SQLSTATE is one of a server that is not available."""
    return sqlstate.startswith(_SERVICE_STATES)


def _describe_place(error: BaseException) -> str:
    """Return the innermost place in this program."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if OWN_CODE in Path(frame.filename).parents]
    return f" in {Path(places[-1].filename).relative_to(OWN_CODE)}:{places[-1].lineno}" if places else ""


def _describe_stack(error: BaseException) -> str:
    """Return the stack of the error and of its causes, innermost last, without messages."""
    parts: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(parts) < MAX_CAUSES:
        frames = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(cause.__traceback__)]
        parts.append(f"{type(cause).__name__} at {' > '.join(frames)}")
        cause = cause.__cause__
    return " | caused by ".join(parts)
