"""What an upgrade brings: the table of known faults, read for two releases and one setup."""
