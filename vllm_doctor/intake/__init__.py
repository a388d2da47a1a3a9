"""What people hand over, sorted: which parts a text holds, whatever was pasted into it, and in which order.

In: the bytes of a file or of standard input. Out: `Parts`, each read by the module that knows its kind (`launch/`,
`sources/gpu`, `sources/host`, `sources/server`); which of them are of one server is decided in `session/`.
"""
