"""Views of the ledger: what commands and pages show. Pure over what the ledger's reader gives, but for `finder`; no output."""
