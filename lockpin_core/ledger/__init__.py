"""The ledger: books of holds and charges that several processes may share. Checking and writing are one transaction."""
