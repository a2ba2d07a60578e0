"""Stream tables and a frontier in; out come the refreshes that are due, computed and written back."""
