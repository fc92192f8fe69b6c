"""The engine of Lockpin: prices, bounds, budgets, holds and settlement. Knows no host and no terminal."""

__version__ = "0.1.0"
