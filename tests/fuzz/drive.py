"""Runs one target under atheris: `drive.py TARGET [options and folders of libFuzzer]`.

What is fuzzed is imported in here, so that it is instrumented; nothing else is.
"""

import importlib
import sys
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "addons"), str(ROOT / "tests" / "rig"), str(HERE)]
OURS = ["lockpin_core", "lockpin_addons.decode", "lockpin_addons.identity", "lockpin_addons.route"]


def main(target: str, options: list[str]) -> None:
    with atheris.instrument_imports(include=OURS):
        run = importlib.import_module(target).run
    mutations = importlib.import_module("mutations")
    seeds = [path.read_bytes() for path in sorted((HERE / "corpus" / target).iterdir())]
    # `atheris.Mutate` is another function before `Fuzz` than in it.
    mutator = mutations.TreeMutator(seeds, lambda data, most: atheris.Mutate(data, most))
    atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
