"""Views of the ledger: what commands and pages show. Pure over the ledger's reader; no output."""
