"""Programs behind the targets of the Makefile."""
