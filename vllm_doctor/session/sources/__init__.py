"""What a word of the command line, or an option, opens: a module for each kind of source. `attach` has the table."""
