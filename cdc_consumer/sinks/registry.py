"""Registers schemas in a Confluent-compatible registry: takes schema text, returns its id.

There is one POST per schema version and process. The registry's compatibility rule for a subject applies: a version
that it rejects stops its table before any row is written with it.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from cdc_consumer.errors import RegistryRefused, RegistryUnavailable, SchemaRefused
from shared_schema.table_schema import TableId

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 10.0
"""A request happens once per schema version; a registry that needs longer counts as unavailable."""

REFUSED = (409, 422)
"""Incompatible with an earlier version; not a schema it understands."""


class SchemaRegistry:
    """A registry at one URL, which may contain user and password."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self._url = urllib.parse.urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Content-Type": CONTENT_TYPE, "Accept": CONTENT_TYPE}
        if parts.username is not None:
            user, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def register(self, table: TableId, subject: str, schema: str) -> int:
        """Register the schema under the subject -> its id; a schema that is already registered keeps its id."""
        quoted = urllib.parse.quote(subject, safe="")
        answer = self._post(f"/subjects/{quoted}/versions", {"schema": schema, "schemaType": "AVRO"}, table, subject)
        found = answer.get("id")
        if not isinstance(found, int) or not 0 <= found < 1 << 31:
            raise RegistryRefused(
                f"the answer of {self._url} has no schema id", hint="is it a Confluent-compatible registry?"
            )
        return found

    def _post(self, path: str, content: dict[str, str], table: TableId, subject: str) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310
            self._url + path, json.dumps(content).encode(), self._headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            said = _message(error)
            if error.code in REFUSED:
                raise SchemaRefused(
                    f"the schema registry rejected a new version of {subject}: {said}",
                    hint=f"allow it (PUT /config/{subject}, compatibility NONE) and start again: the table is copied",
                    table=table,
                ) from error
            if error.code in (401, 403):
                raise RegistryRefused(
                    f"the schema registry denied access: {said}",
                    hint="put user and password into PG_TRICKLE_SCHEMA_REGISTRY_URL",
                ) from error
            raise RegistryUnavailable(f"the schema registry failed ({error.code}): {said}") from error
        except (OSError, ValueError) as error:
            raise RegistryUnavailable(
                f"no schema registry answers at {self._url}: {error}", hint="check PG_TRICKLE_SCHEMA_REGISTRY_URL"
            ) from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(error.reason)
