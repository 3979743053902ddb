"""Generate the API reference, the diagram of the README, and the plots of the benchmarks (``make docs``)."""

from __future__ import annotations

from scripts.docs import diagram, plots, reference

for _part in (reference, diagram, plots):
    _part.main()
