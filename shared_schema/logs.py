"""Formats log lines: a fixed event with fields, as text or JSON. Identifiers and counts only, never row values."""

from __future__ import annotations

import json
import logging
import time

_STANDARD = frozenset(logging.LogRecord("", 0, "", 0, "", None, None).__dict__) | {"message", "taskName"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {k: v for k, v in record.__dict__.items() if k not in _STANDARD}


def _one_line(value: object) -> str:
    """Escape characters that are not printable: a name with a line end could forge or hide a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


class TextFormatter(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO cdc_consumer.pipeline transaction published lsn=0/1 rows=3`."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """Format one record: the event, then its fields; a traceback follows on separate lines."""
        stamp = f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z"
        fields = "".join(f" {k}={_one_line(v)}" for k, v in _fields(record).items())
        line = f"{stamp} {record.levelname} {record.name} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(TextFormatter):
    """The same as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record as JSON."""
        entry: dict[str, object] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(log_format: str, level: str) -> None:
    """Send the log of this process to standard error. Each command line calls this once; no import does."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("py4j").setLevel(logging.WARNING)
