"""Query text -> definition of a stream table: PostgreSQL analyses, we read its answer strictly and plan it."""

from applier.definition.define import Definition, define
from applier.definition.refusal import DefinitionError, Place, Reason, Refused

__all__ = ["Definition", "DefinitionError", "Place", "Reason", "Refused", "define"]
