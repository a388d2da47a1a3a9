"""Values as people read them: numbers with units, durations, quoted YAML, sentences; and what must not be read by them:
secrets, terminal escapes."""
