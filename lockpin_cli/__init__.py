"""The command line: one module for each group of commands. Imports the core and typer; knows no mitmproxy."""
