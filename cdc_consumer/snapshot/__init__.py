"""How a table joins the stream: its rows at one consistent point, then every later change."""
