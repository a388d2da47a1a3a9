"""The text a server is started with: a shell line, a container manifest, a unit, a configuration; no server needed."""
