"""Entry for `mitmdump -s addons/lockpin.py`: check what is installed, then put Lockpin onto the master's chain once.

Only the standard library may be imported at the top: this file must be able to say what is missing. The addons
themselves sit on the master's chain, not in this script, so an edit or a deletion of this file cannot unload them.
"""

import sys
from pathlib import Path


def load(loader: object) -> None:
    """Install Lockpin, or print one line and end the process: a start that failed must never leave a proxy open."""
    try:
        if sys.version_info < (3, 12):
            raise ImportError(f"Python 3.12 or newer is needed, this mitmdump runs on {sys.version.split()[0]}")
        here = Path(__file__).resolve().parent
        if (here.parent / "lockpin_core").is_dir():
            sys.path[:0] = [str(here.parent), str(here)]
        from lockpin_addons import bundle

        bundle.install_in_mitmdump()
    except ImportError as error:
        _end(f"{error}; start it with the mitmdump of Lockpin's own environment (.venv/bin/mitmdump, or `lockpin up`)")
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        if isinstance(error, KeyboardInterrupt):
            sys.exit(130)
        _end(str(error) if getattr(error, "is_plain", False) else f"{type(error).__name__}: {error}")


def _end(line: str) -> None:
    print(f"lockpin: cannot start: {' '.join(line.split())}", file=sys.stderr, flush=True)
    sys.exit(1)
