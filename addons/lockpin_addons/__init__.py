"""Lockpin as mitmproxy addons: the only code that imports mitmproxy."""
