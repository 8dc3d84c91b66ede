"""Compare the stores, report every difference and repair it (docs/architecture.md, docs/runbook.md)."""
