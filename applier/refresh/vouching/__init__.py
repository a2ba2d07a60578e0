"""A frontier in; the stream tables that may be shown there, because nothing that they rest on has changed, out."""
