"""Programs that generate parts of the documentation (``make docs``)."""
