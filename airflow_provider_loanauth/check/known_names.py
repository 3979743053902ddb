"""Names and values that a transcript may show, because they are constants of an interface or a standard."""
